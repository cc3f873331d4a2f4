// Recurrent cells: one step of them, element by element, and steps of a layer, with the products in between. Gates come
// before their sigmoid or tanh, as sums of both products and biases, in PyTorch's order. Plain values.
#pragma once

#include <cstdint>

#include "core/base/dtype.h"

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

// All steps of a layer of `hidden` cells, forwards in time or with `reverse` backwards; a gradient's pass runs them
// from the last to the first. Rows are of a point in time and a sample of the batch, [time, batch, ...], so that each
// sample goes through all steps by itself.
struct RecurrentArgs {
  CellPass pass = CellPass::kLstm;
  bool reverse = false;
  int64_t time = 0, batch = 0, hidden = 0;
  DType wide = DType::kFloat32;  // of gates, states and gradients
  DType low = DType::kFloat32;   // of what products multiply
  const void* weight = nullptr;  // of h, low [gates * hidden, hidden]
  const void* zero = nullptr;    // one number, wide: the state before the first step
  void* gates = nullptr;       // [time, batch, gates * hidden]: biases and products of x, to which those of h are added
  void* of_h = nullptr;        // a GRU's n's part of h [time, batch, hidden]: the bias, to which the product is added
  void* c = nullptr;           // an LSTM's [time, batch, hidden]
  void* h = nullptr;           // low [time, batch, hidden]
  void* dh = nullptr;          // [time, batch, hidden]: of the result, to which what comes by later steps is added
  void* dgates = nullptr;      // as `gates`
  void* dof_h = nullptr;       // as `of_h`
  void* dgates_low = nullptr;  // the same in the type of products, or dgates itself
  void* dof_h_low = nullptr;
  void* dstate = nullptr;  // [batch, hidden], 0: of c, or a GRU's own part of dh; goes from step to step

  bool backward() const { return pass == CellPass::kLstmBackward || pass == CellPass::kGruBackward; }
  bool lstm() const { return pass == CellPass::kLstm || pass == CellPass::kLstmBackward; }
  int64_t all_gates() const { return (lstm() ? 4 : 3) * hidden; }
  int64_t joint() const { return (lstm() ? 4 : 2) * hidden; }  // of gates whose two products are summed
  // The point in time of a step.
  int64_t at(int64_t step) const { return reverse ? time - 1 - step : step; }
};

}  // namespace lockstep
