// tokenizer.model: what is accepted encodes and decodes texts by SentencePiece's library, which trusts its models.
#include "data/text/tokenizer/pieces.h"
#include "tests/fuzz/fuzz.h"

using namespace lockstep;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::shared_ptr<const PieceModel> model;
  const std::string bytes(fuzz::text_of(data, size));
  if (!fuzz::is_accepted({ExitCode::kBadData, ExitCode::kConfig}, [&] { model = PieceModel::parse(bytes, "input"); }))
    return 0;
  const std::string text = "The dog\t \xEF\xAC\x81ne \xE2\x91\xA0 e\xCC\x81 \xF0\x9F\x98\x80 <sep> reads\n  <s> aaaa";
  std::vector<int32_t> ids;
  for (const PieceModel::Token& token : model->encode(text)) {
    fuzz::expect(token.id >= 0 && token.id < model->size(), "an id that is none: ", token.id);
    fuzz::expect(token.begin <= token.end && token.end <= text.size(), "bytes outside the text");
    ids.push_back(token.id);
    model->text_of(token.id);
  }
  fuzz::is_accepted({ExitCode::kBadData}, [&] { model->decode(ids); });
  return 0;
}
