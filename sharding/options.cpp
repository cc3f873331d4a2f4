#include "sharding/options.h"

namespace lockstep {

std::vector<Field> fields(DataParallelOptions& o) {
  std::vector<std::pair<std::string, ShardLevel>> levels;
  for (ShardLevel level : kShardLevels) levels.emplace_back(to_text(level), level);
  return {
      enum_field("reduce", o.reduce, {{"exact", ReduceMode::kExact}, {"fast", ReduceMode::kFast}},
                 "how gradients are added across ranks: exact gives the same bits at every number of ranks; fast uses "
                 "the communication library's own order"),
      field("comm.bucket", o.bucket_mb, "parameters travel in groups of at least this size, made of whole blocks")
          .with_unit("MB")
          .with_range(0, 100000)
          .without_effect_on_math(),
      enum_field("sharding.level", o.level, levels,
                 "what is split across ranks: the optimizer's state (ZeRO-1), gradients too (ZeRO-2), parameters too "
                 "(ZeRO-3, FSDP); the bits of a run do not depend on it")
          .without_effect_on_math(),
      field("sharding.group", o.group,
            "split within groups of this many consecutive ranks, and replicate across groups; 0: one group of all")
          .with_unit("ranks")
          .at_least(0)
          .without_effect_on_math(),
      enum_field("sharding.reshard_after_forward", o.reshard_after_forward,
                 {{"auto", Reshard::kAuto}, {"true", Reshard::kYes}, {"false", Reshard::kNo}},
                 "at level parameters: free a block's parameters between its forward and its backward pass; auto: "
                 "unless all fit into sharding.gathered_limit")
          .without_effect_on_math(),
      field("sharding.gathered_limit", o.gathered_limit_mb,
            "at level parameters: no more than this is gathered at a time; the next block comes early only where it "
            "fits; 0: no limit")
          .with_unit("MB")
          .at_least(0)
          .without_effect_on_math(),
      enum_field(
          "sharding.offload", o.offload_optimizer, {{"none", false}, {"optimizer", true}},
          "optimizer: masters and moments stay in host memory, and updates take them through the device by chunk")
          .without_effect_on_math(),
      enum_field("precision.compute", o.compute,
                 {{"fp32", DType::kFloat32}, {"bf16", DType::kBFloat16}, {"fp16", DType::kFloat16}},
                 "type of parameters and activations in forward and backward, and of parameters on the wire; masters, "
                 "moments, norms, softmax and loss stay fp32; fp16 uses dynamic loss scaling"),
      enum_field("precision.reduce", o.reduce_dtype, {{"fp32", DType::kFloat32}, {"bf16", DType::kBFloat16}},
                 "bf16 rounds each micro-batch's gradient once, before any sum, and sends it so; sums stay fp32"),
      enum_field(
          "precision.frozen", o.frozen_as,
          {{"fp32", FrozenAs::kMasters},
           {"stored", FrozenAs::kStored},
           {"nf4", FrozenAs::kNf4},
           {"int8", FrozenAs::kInt8}},
          "how frozen parameters are kept. stored: in the type of the files of init.from or the compute type, "
          "without fp32 masters; checkpoints hold a hash of these parameters instead of the parameters. With "
          "lora.rank, fp32 means stored, too. nf4, int8: weights of linear layers within blocks in 4 or 8 bits, the "
          "other parameters as with stored")
          .without_effect_at_default()};
}

}  // namespace lockstep
