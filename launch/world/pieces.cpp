#include "launch/world/pieces.h"

#include <algorithm>
#include <vector>

namespace lockstep {
namespace {

constexpr int64_t kMostUnderWay = 1 << 22;  // elements that are under way at a time: 16 MiB of fp32

}  // namespace

void send_in_pieces(Communicator& comm, const Tensor& t, int to, std::string_view label) {
  const Tensor answer = Tensor::of(std::vector<float>{0}, {1});
  for (int64_t at = 0; at < t.numel(); at += kMostUnderWay) {
    comm.send(t.slice(0, at, std::min(at + kMostUnderWay, t.numel())), to, label).finish();
    comm.receive(answer, to, label).finish();
  }
}

void receive_in_pieces(Communicator& comm, const Tensor& t, int from, std::string_view label) {
  const Tensor got = Tensor::of(std::vector<float>{1}, {1});
  for (int64_t at = 0; at < t.numel(); at += kMostUnderWay) {
    comm.receive(t.slice(0, at, std::min(at + kMostUnderWay, t.numel())), from, label).finish();
    comm.send(got, from, label).finish();
  }
}

}  // namespace lockstep
