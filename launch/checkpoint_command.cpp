#include <map>

#include "core/io/checkpoint.h"
#include "launch/command_line.h"
#include "launch/commands.h"
#include "launch/world.h"

namespace lockstep {
namespace {

std::string describe(const Checkpoint& c) {
  const CheckpointInfo& i = c.info;
  std::string out = cat("checkpoint  ", c.dir, "\nstep        ", i.step, "\ndata        epoch ", i.epoch, ", ",
                        i.position, " samples done; dataset ", i.dataset, "\nupdates     ", i.updates, ", ", i.skipped,
                        " steps skipped\nwritten by  lockstep ", i.writer, ", ", i.ranks,
                        i.ranks == 1 ? " rank, " : " ranks, ", i.isa, "\n\n");
  std::map<std::string, std::pair<Shape, int64_t>> tensors;
  int64_t bytes = 0;
  for (const StoredSlice& s : c.slices) {
    auto& [shape, parts] = tensors[s.name];
    shape = s.shape;
    ++parts;
    bytes += s.count * 4;
  }
  for (auto& [name, t] : tensors)
    out += cat("fp32 ", t.first, "  ", name, t.second > 1 ? cat("  in ", t.second, " slices") : "", "\n");
  return out + cat("\n", static_cast<int64_t>(tensors.size()), " tensors, ", bytes, " bytes, all checksums hold\n");
}

}  // namespace

int checkpoint_command(const App&, const std::vector<std::string>& given) {
  const Command command{
      "checkpoint",
      "checkpoint inspect|digest DIR",
      "DIR is a checkpoint, or a run directory: then its newest valid one. Every checksum is verified.\n"
      "inspect: what it holds. digest: one value for the logical state, whatever its layout; equal runs have equal "
      "digests.",
      {},
      2,
      2};
  const Arguments a = parse_arguments(command, given);
  if (a.help) return 0;
  require(a.positional[0] == "inspect" || a.positional[0] == "digest", ExitCode::kUsage, "usage: lockstep ",
          command.usage);
  if (!is_first_process()) return 0;
  const Checkpoint c = open_newest(a.positional[1]);
  print(a.positional[0] == "inspect" ? describe(c)
                                     : cat("step ", c.info.step, " of ", c.dir, "\n", to_hex(digest_of(c)), "\n"));
  return 0;
}

}  // namespace lockstep
