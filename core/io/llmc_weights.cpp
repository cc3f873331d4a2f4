#include "core/io/llmc_weights.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "core/base/plain_file.h"
#include "core/base/system_call.h"
#include "core/io/half.h"
#include "core/io/pending_file.h"

namespace lockstep {
namespace {

constexpr int32_t kMagic = 20240326, kFp32 = 3, kBf16 = 5;
constexpr int64_t kHeaderBytes = 1024, kPiece = 1 << 20;
constexpr int64_t kMostExtent = 1 << 24;  // of any number in the header

using Header = std::array<int32_t, 256>;

int64_t stored_elements(const LlmcHeader& h, const LlmcTensor& t) {
  return t.name == "wte.weight" ? h.padded_vocabulary() * h.width : t.shape.numel();
}

}  // namespace

std::vector<LlmcTensor> llmc_tensors(const LlmcHeader& h) {
  std::vector<LlmcTensor> out{{"wte.weight", {h.vocabulary, h.width}}, {"wpe.weight", {h.positions, h.width}}};
  const auto of_layers = [&](const std::string& name, const Shape& shape) {
    for (int64_t i = 0; i < h.layers; ++i) out.push_back({str("h.", i, ".", name), shape});
  };
  const auto norm = [&](const std::string& name) {
    of_layers(name + ".weight", {h.width});
    of_layers(name + ".bias", {h.width});
  };
  const auto linear = [&](const std::string& name, int64_t rows, int64_t cols) {
    of_layers(name + ".weight", {rows, cols});
    of_layers(name + ".bias", {rows});
  };
  norm("ln_1");
  linear("attn.c_attn", 3 * h.width, h.width);
  linear("attn.c_proj", h.width, h.width);
  norm("ln_2");
  linear("mlp.c_fc", 4 * h.width, h.width);
  linear("mlp.c_proj", h.width, 4 * h.width);
  out.push_back({"ln_f.weight", {h.width}});
  out.push_back({"ln_f.bias", {h.width}});
  return out;
}

bool has_llmc_magic(const std::string& path) {
  const InputFile file(path);
  int32_t magic = 0;
  if (file.size < kHeaderBytes) return false;
  file.read(0, &magic, sizeof magic);
  return magic == kMagic;
}

LlmcHeader read_llmc_header(const std::string& path) {
  const InputFile file(path);
  require(file.size >= kHeaderBytes, ExitCode::kBadData, path, ": has ", file.size,
          " bytes, too few for the header of an llm.c file");
  Header raw;
  file.read(0, raw.data(), kHeaderBytes);
  require(raw[0] == kMagic, ExitCode::kBadData, path, ": is no file of llm.c: it begins with ", raw[0], ", not ",
          kMagic);
  require(raw[1] == kFp32 || raw[1] == kBf16, ExitCode::kBadData, path, ": has version ", raw[1], "; ", kFp32,
          " (GPT-2 in fp32) and ", kBf16, " (GPT-2 in bf16) are read");
  static constexpr const char* kNames[] = {"positions", "tokens", "layers", "heads", "width", "padded tokens"};
  for (size_t i = 0; i < 6; ++i)
    require(raw[i + 2] >= 1 && raw[i + 2] <= kMostExtent, ExitCode::kBadData, path, ": its header says ", raw[i + 2],
            " ", kNames[i]);
  const LlmcHeader h{raw[2], raw[3], raw[4], raw[5], raw[6], raw[1] == kBf16};
  require(raw[7] == h.padded_vocabulary(), ExitCode::kBadData, path, ": pads ", h.vocabulary, " tokens to ", raw[7],
          ", not to a multiple of 128");
  require(h.layers <= file.size / h.width, ExitCode::kBadData, path, ": has ", file.size, " bytes, too few for ",
          h.layers, " layers");
  int64_t elements = 0;
  bool overflow = false;
  for (const LlmcTensor& t : llmc_tensors(h))
    overflow = overflow || __builtin_add_overflow(elements, stored_elements(h, t), &elements);
  const int64_t size = h.bf16 ? 2 : 4;
  require(!overflow && (file.size - kHeaderBytes) / size == elements && (file.size - kHeaderBytes) % size == 0,
          ExitCode::kBadData, path, ": has ", file.size, " bytes; by its header it has ", kHeaderBytes, " and ",
          elements, " elements of ", size, ": truncated or damaged");
  return h;
}

std::vector<StoredWeight> llmc_weights(const std::string& path) {
  const LlmcHeader h = read_llmc_header(path);
  std::vector<StoredWeight> out;
  int64_t at = kHeaderBytes;
  for (LlmcTensor& t : llmc_tensors(h)) {
    const int64_t bytes = stored_elements(h, t) * (h.bf16 ? 2 : 4);
    out.push_back({std::move(t.name), h.bf16 ? "BF16" : "F32", t.shape, 0, at});
    at += bytes;
  }
  return out;
}

void write_llmc_weights(const std::string& path, const LlmcHeader& h,
                        const std::function<void(const LlmcTensor& tensor, IndexRange range, float* out)>& read) {
  PendingFile pending(path, false);
  {
    const Descriptor file = open_to_append(pending.temporary());
    const auto put = [&](const void* bytes, int64_t size) {
      require_done(file && write_all(file, {static_cast<const char*>(bytes), static_cast<size_t>(size)}),
                   ExitCode::kStorage, pending.temporary(), ": cannot be written");
    };
    const auto number = [](int64_t n) { return static_cast<int32_t>(n); };
    const Header raw{kMagic,           h.bf16 ? kBf16 : kFp32, number(h.positions), number(h.vocabulary),
                     number(h.layers), number(h.heads),        number(h.width),     number(h.padded_vocabulary())};
    put(raw.data(), kHeaderBytes);
    std::vector<float> values;
    std::vector<uint16_t> halves;
    for (const LlmcTensor& t : llmc_tensors(h)) {
      const int64_t n = t.shape.numel(), all = stored_elements(h, t);
      for_each_piece({0, all}, kPiece, [&](IndexRange r) {
        values.assign(static_cast<size_t>(r.size()), 0.0f);
        if (r.begin < n) read(t, {r.begin, std::min(r.end, n)}, values.data());
        if (!h.bf16) return put(values.data(), r.size() * 4);
        halves.resize(values.size());
        std::transform(values.begin(), values.end(), halves.begin(), to_bf16_bits);
        put(halves.data(), r.size() * 2);
      });
    }
  }
  pending.commit();
}

}  // namespace lockstep
