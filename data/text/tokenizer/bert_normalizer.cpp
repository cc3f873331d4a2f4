#include "data/text/tokenizer/bert_normalizer.h"

#include <algorithm>
#include <iterator>

#include "data/text/tokenizer/normalizer.h"
#include "data/text/vocabulary.h"

namespace lockstep {
namespace {

// The blocks that BERT calls Chinese; that of extension D is cut as in the package `tokenizers`.
bool is_ideograph(uint32_t c) {
  return (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0x3400 && c <= 0x4DBF) || (c >= 0x20000 && c <= 0x2A6DF) ||
         (c >= 0x2A700 && c <= 0x2B73F) || (c >= 0x2B740 && c <= 0x2B81F) || (c >= 0x2B920 && c <= 0x2CEAF) ||
         (c >= 0xF900 && c <= 0xFAFF) || (c >= 0x2F800 && c <= 0x2FA1F);
}

using Characters = std::vector<PlacedCharacter>;

void clean(Characters& text, size_t from) {
  const auto first = text.begin() + static_cast<std::ptrdiff_t>(from);
  auto to = first;
  for (auto c = first; c != text.end(); ++c) {
    const uint32_t point = c->code_point;
    const bool space = point == '\t' || point == '\n' || point == '\r';
    if (!space && (point == 0 || point == 0xFFFD || kind_of(point).control)) continue;
    *to = *c;
    if (space || is_white_space(point)) to->code_point = ' ';
    ++to;
  }
  text.erase(to, text.end());
}

void separate_ideographs(Characters& text, size_t from) {
  Characters out;
  for (size_t i = from; i < text.size(); ++i) {
    const bool alone = is_ideograph(text[i].code_point);
    const PlacedCharacter space{' ', text[i].begin, text[i].end};
    if (alone) out.push_back(space);
    out.push_back(text[i]);
    if (alone) out.push_back(space);
  }
  text.resize(from);
  text.insert(text.end(), out.begin(), out.end());
}

// Characters of a combining class other than 0 come in its order. Those that change places have one place in the text.
void order_marks(Characters& text, size_t from) {
  const auto less = [](const PlacedCharacter& a, const PlacedCharacter& b) {
    return combining_class(a.code_point) < combining_class(b.code_point);
  };
  for (size_t begin = from; begin < text.size();) {
    size_t end = begin;
    while (end < text.size() && combining_class(text[end].code_point) > 0) ++end;
    const auto first = text.begin() + static_cast<std::ptrdiff_t>(begin),
               last = text.begin() + static_cast<std::ptrdiff_t>(end);
    if (!std::is_sorted(first, last, less)) {
      const uint32_t place = first->begin, place_end = std::prev(last)->end;
      std::stable_sort(first, last, less);
      for (auto c = first; c != last; ++c) c->begin = place, c->end = place_end;
    }
    begin = end + 1;
  }
}

void strip_accents(Characters& text, size_t from) {
  Characters out;
  for (size_t i = from; i < text.size(); ++i) {
    const Decomposed parts = canonical_decomposition(text[i].code_point);
    for (size_t k = 0; k < parts.count; ++k) out.push_back({parts.points[k], text[i].begin, text[i].end});
  }
  text.resize(from);
  text.insert(text.end(), out.begin(), out.end());
  order_marks(text, from);
  const auto mark = [](const PlacedCharacter& c) { return c.code_point >= 0x300 && kind_of(c.code_point).mark; };
  text.erase(std::remove_if(text.begin() + static_cast<std::ptrdiff_t>(from), text.end(), mark), text.end());
}

void lower(Characters& text, size_t from) {
  constexpr uint32_t kDottedI = 0x130, kDot = 0x307;  // the one character whose small form is two
  size_t more = 0;
  for (size_t i = from; i < text.size(); ++i) more += text[i].code_point == kDottedI;
  size_t read = text.size();
  text.resize(text.size() + more);
  for (size_t to = text.size(); read > from;) {
    PlacedCharacter c = text[--read];
    if (c.code_point == kDottedI) text[--to] = {kDot, c.begin, c.end}, c.code_point = 'I';
    c.code_point = lower_case(c.code_point);
    text[--to] = c;
  }
}

}  // namespace

void bert_normalise(std::string_view text, const BertRules& rules, size_t at, std::vector<PlacedCharacter>& out) {
  const size_t from = out.size();
  bool ascii = true;
  Utf8Reader reader;
  for (size_t i = 0; i < text.size(); ++i) {
    if (reader.next(static_cast<uint8_t>(text[i])) != Utf8Reader::Result::kCodePoint) continue;
    const size_t begin = at + i + 1 - static_cast<size_t>(reader.length());
    out.push_back({reader.code_point(), static_cast<uint32_t>(begin), static_cast<uint32_t>(at + i + 1)});
    ascii &= reader.code_point() < 0x80;
  }
  if (rules.clean) clean(out, from);
  if (rules.ideographs && !ascii) separate_ideographs(out, from);
  if (rules.strip_accents && !ascii) strip_accents(out, from);
  if (rules.lowercase) lower(out, from);
}

}  // namespace lockstep
