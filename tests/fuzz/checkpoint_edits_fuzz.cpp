// Damage to a checkpoint that we wrote: it is found (exit code 65), or what is read is what was written. The first byte
// chooses the manifest or one of the two parts, the others are edits (edits.h).
#include <filesystem>
#include <fstream>
#include <iterator>

#include "core/state/checkpoint.h"
#include "tests/fuzz/edits.h"
#include "tests/fuzz/fuzz.h"

using namespace lockstep;

namespace {

constexpr int kWriters = 2;

std::vector<StateEntry> state() {
  std::vector<StateEntry> out;
  for (const auto& [name, shape] : std::vector<std::pair<std::string, Shape>>{
           {"parameters/a.weight", {5, 7}}, {"parameters/a.bias", {1}}, {"adamw.m/up.weight", {30, 10}}}) {
    std::vector<float> values;
    for (int64_t i = 0; i < shape.numel(); ++i) values.push_back(0.25f * static_cast<float>(i % 31) - 3);
    out.push_back({name, shape, 0, Tensor::of(values, {shape.numel()})});
  }
  return out;
}

struct Original {
  std::string dir;
  std::vector<std::string> names, bytes;  // of its files
  Hash128 digest;
  std::vector<float> values;
};

std::vector<float> values_of(const Checkpoint& c) {
  std::vector<float> out;
  for (const StateEntry& e : state()) {
    const size_t at = out.size();
    out.resize(at + static_cast<size_t>(e.region.shape.numel()));
    read_elements(c, e.name, {0, e.region.shape.numel()}, out.data() + at);
  }
  return out;
}

Original make() {
  const std::string folder = fuzz::scratch("checkpoints"), pending = pending_checkpoint(folder, 3);
  std::vector<StoredSlice> slices;
  begin_checkpoint(pending);
  for (int w = 0; w < kWriters; ++w)
    for (StoredSlice& s : write_part(pending, w, kWriters, cut_for_rank(state(), w, kWriters)))
      slices.push_back(std::move(s));
  CheckpointInfo info;
  info.step = 3, info.updates = 3, info.position = 12, info.ranks = kWriters;
  info.dataset = "0123456789abcdef0123456789abcdef";
  info.math_text = info.config = "seed: 1\n";
  info.vocabulary = "char\nab\xc3\xa9";
  info.input = {64}, info.classes = 3;
  info.isa = "avx2", info.writer = "0.1.0", info.layout = "2 ranks, level none";
  commit_checkpoint(folder, info, slices, kWriters);
  Original out;
  out.dir = str(folder, "/", checkpoint_name(3));
  for (const auto& entry : std::filesystem::directory_iterator(out.dir)) out.names.push_back(entry.path().string());
  std::sort(out.names.begin(), out.names.end());
  for (const std::string& name : out.names) {
    std::ifstream in(name, std::ios::binary);
    out.bytes.emplace_back(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
  }
  const Checkpoint c = open_newest(out.dir);
  out.digest = digest_of(c);
  out.values = values_of(c);
  return out;
}

}  // namespace

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t capacity, unsigned seed) {
  return fuzz::mutate_edits(data, size, capacity, seed);
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const Original original = make();
  if (size == 0) return 0;
  const size_t file = data[0] % original.names.size();
  fuzz::write_file(original.names[file], fuzz::edited(original.bytes[file], fuzz::text_of(data + 1, size - 1)));
  fuzz::is_accepted({ExitCode::kBadData}, [&] {
    const Checkpoint c = open_newest(original.dir);
    fuzz::expect(digest_of(c) == original.digest, "the checkpoint has another digest");
    fuzz::expect(values_of(c) == original.values, "the checkpoint has other values");
  });
  fuzz::write_file(original.names[file], original.bytes[file]);
  return 0;
}
