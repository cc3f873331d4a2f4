// Steps of recurrent cells in time, element by element over [hidden, batch]. Gates come before their sigmoid or tanh,
// as sums of both products and biases, in PyTorch's order. Plain values.
#pragma once

#include <cstdint>

namespace lockstep {

// Inputs -> outputs.
enum class CellPass : uint8_t {
  // Hochreiter and Schmidhuber, "Long Short-Term Memory" (1997), with the forget gate of Gers et al. (2000).
  kLstm,          // i, f, g, o, c before -> c, h
  kLstmBackward,  // i, f, g, o, c before, dh, dc -> di, df, dg, do, dc before
  // Cho et al., "Learning Phrase Representations using RNN Encoder-Decoder" (2014); the reset gate multiplies the
  // product of the state, as in cuDNN and PyTorch.
  kGru,          // r, z, n's part of x, n's part of h, h before -> h
  kGruBackward,  // r, z, n's part of x, n's part of h, h before, dh -> dr, dz, dn of x, dn of h, dh before (its own
                 // part)
};

}  // namespace lockstep
