// make_bad_tokens OUTPUT.h5 COUNT INDEX: a dataset of tokens 0 to 9 whose checksums all hold, but where token INDEX is
// 200.
#include <cstdlib>
#include <iostream>
#include <vector>

#include "core/base/error.h"
#include "data/samples/dataset_file.h"

int main(int argc, char** argv) {
  using namespace lockstep;
  if (argc != 4) return static_cast<int>(ExitCode::kUsage);
  std::vector<uint8_t> tokens(static_cast<size_t>(std::atoll(argv[2])));
  for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<uint8_t>(i * i % 10);
  tokens.at(static_cast<size_t>(std::atoll(argv[3]))) = 200;
  try {
    Hdf5File file = Hdf5File::create(argv[1]);
    DatasetHeader header;
    header.tokens = static_cast<int64_t>(tokens.size());
    header.vocabulary_size = 10;
    ChunkWriter writer(file, "tokens", token_type(10), {header.tokens}, tokens_per_chunk());
    writer.append(tokens.data(), header.tokens);
    header.hashes = writer.finish();
    write_dataset_header(file, header);
    file.close();
    return 0;
  } catch (const Error& e) {
    std::cerr << e.what() << "\n";
    return static_cast<int>(e.code());
  }
}
