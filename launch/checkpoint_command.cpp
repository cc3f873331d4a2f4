#include <algorithm>
#include <bit>
#include <cmath>
#include <filesystem>
#include <limits>
#include <map>

#include "core/io/checkpoint.h"
#include "core/io/hdf5_file.h"
#include "core/io/pending_file.h"
#include "launch/command_line.h"
#include "launch/commands.h"
#include "launch/config.h"
#include "launch/world.h"

namespace lockstep {
namespace {

constexpr int64_t kPiece = 1 << 20;  // elements read at a time
const std::string kParameters = "parameters/";

// What a checkpoint says of one tensor, whatever its slices.
struct StoredTensor {
  Shape shape;
  Hash128 hash;
  int64_t slices = 0;
};
std::map<std::string, StoredTensor> tensors_of(const Checkpoint& c) {
  std::map<std::string, StoredTensor> out;
  for (const StoredSlice& s : c.slices) {
    StoredTensor& t = out[s.name];
    t.shape = s.shape;
    t.hash += s.hash;
    ++t.slices;
  }
  return out;
}

std::string size_text(const Checkpoint& c) {
  int64_t bytes = 0;
  for (const StoredSlice& s : c.slices) bytes += s.count * 4;
  return cat(tensors_of(c).size(), " tensors, ", bytes, " bytes");
}

std::string describe(const Checkpoint& c) {
  const CheckpointInfo& i = c.info;
  const std::string layout = i.layout.empty() ? cat(i.ranks, i.ranks == 1 ? " rank" : " ranks") : i.layout;
  std::string out =
      cat("checkpoint  ", c.dir, "\nstep        ", i.step, "\ndata        epoch ", i.epoch, ", ", i.position,
          " samples done; dataset ", i.dataset, "\nupdates     ", i.updates, ", ", i.skipped, " steps skipped\n");
  if (i.loss_scale != 1) out += cat("loss scale  ", i.loss_scale, ", for ", i.good_steps, " steps\n");
  out += cat("written by  lockstep ", i.writer, ", ", layout, ", ", i.isa, "\n\n");
  for (auto& [name, t] : tensors_of(c))
    out += cat("fp32 ", t.shape, "  ", name, t.slices > 1 ? cat("  in ", t.slices, " slices") : "", "\n");
  return out + cat("\n", size_text(c), ", all checksums hold\n");
}

// Every checkpoint of a run, or the one.
void verify(const std::string& dir) {
  std::vector<std::string> all = list_checkpoints(dir);
  if (all.empty()) {
    std::error_code error;
    require(!std::filesystem::is_directory(dir, error) || std::filesystem::exists(dir + "/manifest.json", error),
            ExitCode::kMissingInput, dir, ": holds no checkpoint");
    all = {dir};
  }
  std::string first_problem;
  int64_t damaged = 0;
  for (const std::string& path : all) {
    try {
      const Checkpoint c = open_checkpoint(path);
      verify_checkpoint(c);
      print(cat("whole    ", path, "  ", size_text(c), "\n"));
    } catch (const Error& e) {
      if (e.code() != ExitCode::kBadData) throw;
      if (++damaged == 1) first_problem = e.what();
      print(cat("damaged  ", path, "  ", e.what(), "\n"));
    }
  }
  require(
      damaged == 0, ExitCode::kBadData,
      damaged > 1 ? cat(dir, ": ", damaged, " of ", all.size(), " checkpoints are damaged; the newest of them: ") : "",
      first_problem);
}

std::string place_text(const Shape& shape, int64_t element) {
  Shape at = shape;
  for (int i = shape.rank() - 1; i >= 0; --i) {
    at[i] = element % shape[i];
    element /= shape[i];
  }
  return to_text(at);
}

// "12 of 35 elements differ, ..."; by bits, so that a NaN equals itself.
std::string tensor_difference(const Checkpoint& a, const Checkpoint& b, const std::string& name, const Shape& shape) {
  const int64_t n = shape.numel();
  std::vector<float> x(static_cast<size_t>(std::min(n, kPiece))), y(x.size());
  int64_t count = 0, first = 0;
  float first_x = 0, first_y = 0;
  double largest = 0;
  for (Range r{0, std::min(n, kPiece)}; !r.empty(); r = {r.end, std::min(n, r.end + kPiece)}) {
    read_elements(a, name, r, x.data());
    read_elements(b, name, r, y.data());
    for (int64_t i = 0; i < r.size(); ++i) {
      const float v = x[static_cast<size_t>(i)], w = y[static_cast<size_t>(i)];
      if (std::bit_cast<uint32_t>(v) == std::bit_cast<uint32_t>(w)) continue;
      if (++count == 1) first = r.begin + i, first_x = v, first_y = w;
      const double difference = std::abs(static_cast<double>(v) - static_cast<double>(w));
      largest = std::isnan(difference) ? std::numeric_limits<double>::infinity() : std::max(largest, difference);
    }
  }
  return cat(count, " of ", n, " elements differ, by ", largest, " at most; the first at ", place_text(shape, first),
             ": ", first_x, " in A, ", first_y, " in B");
}

// Prints what differs; returns whether anything does that digest_of sees.
bool print_differences(const Checkpoint& a, const Checkpoint& b) {
  bool equal = true;
  const auto value = [&](const std::string& what, const auto& x, const auto& y) {
    equal = equal && x == y;
    print(x == y ? cat(what, ": ", x, "\n") : cat(what, ": ", x, " in A, ", y, " in B\n"));
  };
  const CheckpointInfo &i = a.info, &j = b.info;
  print(cat("A: ", a.dir, "\nB: ", b.dir, "\n"));
  value("step", i.step, j.step);
  value("epoch", i.epoch, j.epoch);
  value("samples done", i.position, j.position);
  value("updates", i.updates, j.updates);
  value("steps skipped", i.skipped, j.skipped);
  value("loss scale", cat(i.loss_scale, " for ", i.good_steps, " steps"),
        cat(j.loss_scale, " for ", j.good_steps, " steps"));
  value("dataset", i.dataset, j.dataset);
  const auto keys = diff(i.math_text, j.math_text);
  for (const ConfigDifference& d : keys) value(d.key, d.a, d.b);
  if (keys.empty()) print("configuration that shapes the mathematics: equal\n");
  const auto in_a = tensors_of(a), in_b = tensors_of(b);
  int64_t all = 0, different = 0;
  const auto tensor = [&](const std::string& name, const std::string& text, bool differs) {
    print(cat(name, " ", text, "\n"));
    ++all;
    different += differs;
  };
  for (auto& [name, t] : in_a) {
    const auto other = in_b.find(name);
    if (other == in_b.end()) tensor(name, cat(t.shape, ": only in A"), true);
    else if (!(t.shape == other->second.shape))
      tensor(name, cat(t.shape, " in A, ", other->second.shape, " in B"), true);
    else if (t.hash == other->second.hash) tensor(name, cat(t.shape, ": equal"), false);
    else tensor(name, cat(t.shape, ": ", tensor_difference(a, b, name, t.shape)), true);
  }
  for (auto& [name, t] : in_b)
    if (!in_a.count(name)) tensor(name, cat(t.shape, ": only in B"), true);
  equal = equal && different == 0;
  print(equal ? "equal\n" : cat("different; ", different, " of ", all, " tensors differ\n"));
  return !equal;
}

void export_parameters(const Checkpoint& c, const std::string& output) {
  PendingFile pending(output, false);
  Hdf5File file = Hdf5File::create(pending.temporary());
  int64_t tensors = 0;
  std::vector<float> values;
  for (auto& [full_name, t] : tensors_of(c)) {
    if (!full_name.starts_with(kParameters)) continue;
    const std::string name = full_name.substr(kParameters.size());
    const Shape shape = t.shape.rank() > 0 ? t.shape : Shape{1};
    file.create_dataset(name, StoredType::kFloat32, shape);
    ++tensors;
    if (shape.numel() == 0) continue;
    const int64_t row = shape.numel() / shape[0], rows = std::max<int64_t>(1, kPiece / row);
    for (Range r{0, std::min(rows, shape[0])}; !r.empty(); r = {r.end, std::min(r.end + rows, shape[0])}) {
      values.resize(static_cast<size_t>(r.size() * row));
      read_elements(c, full_name, {r.begin * row, r.end * row}, values.data());
      file.write(name, StoredType::kFloat32, r, values.data());
    }
  }
  require(tensors > 0, ExitCode::kBadData, c.dir, ": holds no parameters");
  file.set_attribute("", "step", c.info.step);
  file.set_attribute("", "digest", to_hex(digest_of(c)));
  file.close();
  pending.commit();
  print(cat("exported ", tensors, " tensors of ", c.dir, " to ", output, "\n"));
}

}  // namespace

int checkpoint_command(const App&, const std::vector<std::string>& given) {
  const Command command{
      "checkpoint",
      "checkpoint inspect|digest|verify DIR | diff A B | export DIR OUT.h5",
      "DIR, A, B: a checkpoint, or a run directory: then its newest valid one. Every checksum is verified.\n"
      "inspect: what it holds.\n"
      "digest: one value for the logical state, whatever its layout; equal runs have equal digests.\n"
      "verify: whether it is whole; of a run directory, each of its checkpoints. Exit code 65 where one is not.\n"
      "diff: what differs between two states, whatever their layouts; exit code 1 where anything does.\n"
      "export: the parameters alone, whole and by plain name, as one HDF5 file that is not there yet.",
      {},
      2,
      3};
  const Arguments a = parse_arguments(command, given);
  if (a.help) return 0;
  const std::string& what = a.positional[0];
  const bool two = what == "diff" || what == "export";
  require((two || what == "inspect" || what == "digest" || what == "verify") && a.positional.size() == (two ? 3u : 2u),
          ExitCode::kUsage, "usage: lockstep ", command.usage);
  if (!is_first_process()) return 0;
  if (what == "verify") {
    verify(a.positional[1]);
    return 0;
  }
  const Checkpoint c = open_newest(a.positional[1]);
  if (what == "diff") return print_differences(c, open_newest(a.positional[2])) ? 1 : 0;
  if (what == "export") export_parameters(c, a.positional[2]);
  else if (what == "inspect") print(describe(c));
  else print(cat("step ", c.info.step, " of ", c.dir, "\n", to_hex(digest_of(c)), "\n"));
  return 0;
}

}  // namespace lockstep
