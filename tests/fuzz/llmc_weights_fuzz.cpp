// Weights of llm.c: the input as it is; and once more behind a header of small numbers, its first bytes, with as many
// elements as it names.
#include "core/io/llmc_weights.h"

#include <array>
#include <cstring>

#include "tests/fuzz/fuzz.h"

using namespace lockstep;

namespace {

void open_weights(std::string_view bytes) {
  static const std::string path = fuzz::scratch("gpt2.bin");
  fuzz::write_file(path, bytes);
  fuzz::is_accepted({ExitCode::kBadData}, [&] {
    if (!has_llmc_magic(path)) {
      read_llmc_header(path);
      fuzz::expect(false, "a file without the magic number was read");
    }
    const WeightFiles files = WeightFiles::open(path);
    int64_t elements = 0;
    for (const StoredWeight& w : files.weights()) {
      const int64_t n = w.shape.numel();
      fuzz::expect(n >= 0 && n <= static_cast<int64_t>(bytes.size()), "more elements than the file can hold");
      elements += n;
      std::vector<float> values(static_cast<size_t>(n));
      files.read(w, {0, n}, values.data());
    }
    fuzz::expect(2 * elements <= static_cast<int64_t>(bytes.size()), "more elements than the file can hold");
  });
}

std::string with_header(std::string_view all) {
  std::array<int32_t, 256> header{20240326};
  const auto byte = [&](size_t i) { return i < all.size() ? static_cast<uint8_t>(all[i]) : 0; };
  LlmcHeader h{byte(1) % 8, byte(2), byte(3) % 4, byte(4) % 4, byte(5) % 8, (byte(0) & 1) != 0};
  int64_t elements = (h.padded_vocabulary() - h.vocabulary) * h.width;
  for (const LlmcTensor& t : llmc_tensors(h)) elements += t.shape.numel();
  header[1] = byte(0) < 192 ? (h.bf16 ? 5 : 3) : byte(0) % 8;
  header[2] = static_cast<int32_t>(h.positions), header[3] = static_cast<int32_t>(h.vocabulary);
  header[4] = static_cast<int32_t>(h.layers), header[5] = static_cast<int32_t>(h.heads);
  header[6] = static_cast<int32_t>(h.width);
  header[7] = static_cast<int32_t>(byte(6) < 192 ? h.padded_vocabulary() : byte(6));
  if (all.size() > 16) std::memcpy(&header[byte(7) % 8], all.data() + 8, 4);  // any number in place of one
  std::string out(reinterpret_cast<const char*>(header.data()), sizeof header);
  out.resize(out.size() + static_cast<size_t>(elements * (h.bf16 ? 2 : 4)), 'x');
  if (byte(8) % 8 == 0) out.resize(out.size() - byte(9) % 8);
  return out;
}

}  // namespace

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t capacity, unsigned seed) {
  static const std::vector<std::string_view> words = {"\xc6\xd7\x34\x01", "\x03", "\x05", "\xff\xff\xff\x7f",
                                                      "\xff\xff\xff\xff", "\x01"};
  return fuzz::mutate_with_words(data, size, capacity, seed, words);
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  open_weights(fuzz::text_of(data, size));
  open_weights(with_header(fuzz::text_of(data, size)));
  return 0;
}
