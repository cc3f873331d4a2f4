// A large tensor from one rank to another, 16 MiB at a time: the sender waits until the receiver has one before it
// sends the next, since a send by itself is buffered.
#pragma once

#include <string_view>

#include "comm/communicator.h"

namespace lockstep {

// In host memory.
void send_in_pieces(Communicator& comm, const Tensor& tensor, int to, std::string_view label);
void receive_in_pieces(Communicator& comm, const Tensor& tensor, int from, std::string_view label);

}  // namespace lockstep
