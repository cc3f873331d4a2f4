// mutate FILE SEED: damages FILE in place, always in the same way for one seed, and prints how. Bits, runs of bytes,
// truncation and moved, repeated, inserted or removed pieces; half of all places lie outside the chunks that a seal
// names (core/io/file_seal.h).
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iostream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

namespace {

class Mutation {
 public:
  Mutation(std::string& bytes, uint64_t seed) : bytes_(bytes), random_(seed) { find_metadata(); }

  std::string apply() {
    const std::string before = bytes_;
    std::string how;
    do how = once();
    while (bytes_ == before);  // a run of zeros over zeros is no damage
    for (uint64_t more = below(4) == 0 ? 1 + below(3) : 0; more > 0; --more) how += ", " + once();
    return how;
  }

 private:
  uint64_t below(uint64_t limit) { return limit == 0 ? 0 : random_() % limit; }

  void find_metadata() {
    if (bytes_.size() < 4096 || bytes_.compare(0, 8, "lockstep") != 0) return;
    uint32_t count = 0;
    std::memcpy(&count, bytes_.data() + 12, 4);
    uint64_t at = 0;
    for (uint32_t i = 0; i <= count; ++i) {
      uint64_t range[2] = {bytes_.size(), bytes_.size()};
      if (i < count) std::memcpy(range, bytes_.data() + 48 + 16 * i, 16);
      for (; at < range[0]; at += 8) metadata_.push_back(at);
      at = range[1];
    }
  }

  size_t place() {
    const bool known = !metadata_.empty() && below(2) == 0;
    const uint64_t at = known ? metadata_[below(metadata_.size())] + below(8) : below(bytes_.size());
    return static_cast<size_t>(std::min<uint64_t>(at, bytes_.empty() ? 0 : bytes_.size() - 1));
  }
  // Short pieces as often as long ones.
  size_t length(size_t at) {
    return static_cast<size_t>(std::min<uint64_t>(1 + below(uint64_t{1} << below(14)), bytes_.size() - at));
  }

  std::string once() {
    if (bytes_.empty()) {
      bytes_.push_back(static_cast<char>(below(256)));
      return "a byte in an empty file";
    }
    const size_t at = place(), n = length(at);
    const std::string where = std::to_string(n) + " bytes at " + std::to_string(at);
    switch (below(9)) {
      case 0:
      case 1:
      case 2: {
        bytes_[at] = static_cast<char>(bytes_[at] ^ (1 << below(8)));
        return "a bit of byte " + std::to_string(at);
      }
      case 3: {
        const char fill = "\0\xff\x01\x80"[below(4)];
        std::fill_n(bytes_.begin() + static_cast<std::ptrdiff_t>(at), n, fill);
        return where + " filled";
      }
      case 4: {
        for (size_t i = at; i < at + n; ++i) bytes_[i] = static_cast<char>(below(256));
        return where + " random";
      }
      case 5: bytes_.resize(at); return "cut at " + std::to_string(at);
      case 6: bytes_.erase(at, n); return where + " removed";
      case 7: {
        const std::string piece = bytes_.substr(at, n);
        const size_t to = place();
        bytes_.insert(to, piece);
        return where + " inserted at " + std::to_string(to);
      }
      default: {
        const std::string piece = bytes_.substr(at, n);
        const size_t to = place();
        bytes_.replace(to, std::min(piece.size(), bytes_.size() - to), piece, 0,
                       std::min(piece.size(), bytes_.size() - to));
        return where + " copied to " + std::to_string(to);
      }
    }
  }

  std::string& bytes_;
  std::mt19937_64 random_;
  std::vector<uint64_t> metadata_;  // every eighth byte outside the chunks
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 64;
  std::ifstream in(argv[1], std::ios::binary);
  std::string bytes(std::istreambuf_iterator<char>(in), {});
  in.close();
  const std::string how = Mutation(bytes, std::strtoull(argv[2], nullptr, 10)).apply();
  std::ofstream out(argv[1], std::ios::binary | std::ios::trunc);
  out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  std::cout << how << "\n";
  return out.good() ? 0 : 1;
}
