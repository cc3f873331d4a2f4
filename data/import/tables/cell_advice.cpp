#include "data/import/tables/cell_advice.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "core/base/error.h"
#include "data/import/tables/date_cell.h"
#include "data/import/tables/table_cells.h"
#include "data/samples/label_index.h"

namespace lockstep {
namespace {

bool is_word_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || static_cast<uint8_t>(c) >= 0x80;
}

bool is_currency_sign(uint32_t c) {
  return c == '$' || (c >= 0xA2 && c <= 0xA5) || c == 0x0E3F || (c >= 0x20A0 && c <= 0x20CF) || c == 0xFF04 ||
         c == 0xFFE5;
}
bool is_currency(std::string_view text) {
  constexpr std::string_view kNames[] = {"USD", "EUR", "GBP", "JPY", "CHF", "CNY", "RMB", "INR", "AUD", "CAD", "NZD",
                                         "SEK", "NOK", "DKK", "PLN", "CZK", "HUF", "RUB", "BRL", "MXN", "KRW", "SGD",
                                         "HKD", "ZAR", "TRY", "ILS", "THB", "IDR", "Rs",  "Rs.", "kr",  "kr.", "Fr."};
  if (std::find(std::begin(kNames), std::end(kNames), text) != std::end(kNames)) return true;
  size_t letters = 0;  // of US$
  while (letters < text.size() && text[letters] >= 'A' && text[letters] <= 'Z') ++letters;
  if (letters == text.size() || letters > 3) return false;
  size_t end = letters + 1;
  while (end < text.size() && (static_cast<uint8_t>(text[end]) & 0xC0) == 0x80) ++end;
  return end == text.size() && is_currency_sign(jinja::character_at(text, letters));
}

// A text with a number in its middle.
struct Parts {
  std::string_view before, number, behind;
  bool parentheses = false, spaced = false;  // around all of it; between the number and what is behind
  bool sign_behind = false;                  // as in 5-
};

std::optional<Parts> parts_of(std::string_view text) {
  Parts out;
  if (text.size() > 2 && text.front() == '(' && text.back() == ')' && !text.substr(1).starts_with('-'))
    out.parentheses = true, text = without_white_space(text.substr(1, text.size() - 2));
  else if (text.size() > 1 && text.ends_with('-') && is_decimal_digit(text[text.size() - 2]))
    out.sign_behind = true, text.remove_suffix(1);
  const auto first = std::find_if(text.begin(), text.end(), is_decimal_digit);
  if (first == text.end()) return std::nullopt;
  auto begin = static_cast<size_t>(first - text.begin()), end = begin;
  while (end < text.size()) {
    size_t sign = 0;
    for (char c : {',', '.', '\'', '_', ' '})
      if (sign == 0) sign = thousands_at(text.substr(end), c);
    if (is_decimal_digit(text[end])) ++end;
    else if (sign > 0 && end + sign < text.size() && is_decimal_digit(text[end + sign])) end += sign;
    else break;
  }
  if (begin > 0 && (text[begin - 1] == '.' || text[begin - 1] == ',') &&
      (begin == 1 || !is_word_letter(text[begin - 2])))
    --begin;
  out.number = text.substr(begin, end - begin);
  out.before = without_white_space(text.substr(0, begin));
  for (std::string_view sign : {"-", "+", "\u2212"})
    if (out.before.ends_with(sign)) out.before.remove_suffix(sign.size());
    else if (out.before.starts_with(sign)) out.before.remove_prefix(sign.size());
  out.before = without_white_space(out.before);
  const std::string_view rest = text.substr(end);
  out.behind = without_white_space(rest);
  out.spaced = !rest.empty() && !out.behind.empty() && rest.front() != out.behind.front();
  return out;
}

enum class Unit { kNone, kSign, kWord };  // nothing that is one, a sign or currency, a word that may be one

Unit unit_of(std::string_view behind) {
  if (is_currency(behind)) return Unit::kSign;
  bool has_digit = false;
  for (size_t i = 0; i < behind.size(); ++i) {
    if (is_decimal_digit(behind[i]) && (i == 0 || !is_word_letter(behind[i - 1]))) return Unit::kNone;
    has_digit |= is_decimal_digit(behind[i]);
  }
  for (std::string_view sign : {"%", "\u2030", "\u00b0", "\u2032", "\u2033", "\"", "'"})
    if (behind.starts_with(sign) && !has_digit) return Unit::kSign;
  if (!is_word_letter(behind.front())) return Unit::kNone;
  for (std::string_view ordinal : {"st", "nd", "rd", "th"})
    if (behind.starts_with(ordinal) && (behind.size() == 2 || !is_word_letter(behind[2]))) return Unit::kNone;
  const auto in_unit = [](char c) {
    return is_word_letter(c) || is_decimal_digit(c) || c == ' ' || c == '/' || c == '.';
  };
  return std::all_of(behind.begin(), behind.end(), in_unit) ? Unit::kWord : Unit::kNone;
}

class Advice {
 public:
  Advice(const std::vector<std::string_view>& texts, const std::string& name, const NumberForm& form)
      : texts_(texts), name_(name), form_(form) {}

  CellAdvice take() {
    for (std::string_view text : texts_) {
      if (number_in(text, form_)) ++out_.numbers;
      else others_.push_back(text);
    }
    out_.texts = static_cast<int64_t>(texts_.size());
    if (!others_.empty() && !advise_date()) advise_number();
    return std::move(out_);
  }

 private:
  bool is_most(size_t count) const { return count * 2 > texts_.size(); }

  template <class Reads>
  size_t count(const Reads& reads) const {
    return static_cast<size_t>(std::count_if(others_.begin(), others_.end(), reads));
  }
  template <class Reads>
  void take_samples(const Reads& reads) {
    constexpr size_t kSamples = 3;
    for (std::string_view text : others_)
      if (out_.samples.size() < kSamples && reads(text)) out_.samples.emplace_back(text);
  }

  bool advise_date() {
    const auto by = [](DateOrder order) {
      return [order](std::string_view text) { return date_in(text, order).has_value(); };
    };
    const auto count_by = [&](DateOrder order) { return count(by(order)); };
    const size_t year = count_by(DateOrder::kYearFirst), day = count_by(DateOrder::kDayFirst),
                 month = count_by(DateOrder::kMonthFirst), most = std::max({year, day, month});
    const std::string option = "--date " + shell_word(name_);
    if (is_most(count(has_short_year))) {
      out_.how = "the years of such dates have two digits, which do not name the century: write four, with which " +
                 option + " reads them";
      take_samples(has_short_year);
      return true;
    }
    if (!is_most(most)) return false;
    const auto order = [](DateOrder o) { return str(" --date-order ", kDateOrders[static_cast<size_t>(o)]); };
    if (most == year) out_.how = option;
    else if (day == month)
      out_.how = str(option, " with", order(DateOrder::kDayFirst), ", or", order(DateOrder::kMonthFirst),
                     " where the month comes first,");
    else out_.how = option + order(day > month ? DateOrder::kDayFirst : DateOrder::kMonthFirst);
    const auto reads = by(day >= month ? DateOrder::kDayFirst : DateOrder::kMonthFirst);
    bool dates = false;
    for (std::string_view text : others_)
      if (const auto date = date_in(text, day >= month ? DateOrder::kDayFirst : DateOrder::kMonthFirst))
        dates |= date->kind != DateKind::kTimeOfDay;
    out_.how += dates ? " reads such cells as days since 1970-01-01" : " reads such cells as parts of a day";
    take_samples(reads);
    return true;
  }

  // The texts around numbers that are no names; those of words by how many others have the same.
  std::set<std::string_view> words_that_are_units(const std::vector<std::optional<Parts>>& parts) const {
    std::map<std::string_view, size_t> words, glued;
    size_t all = 0;
    for (const auto& p : parts)
      if (p && !p->behind.empty() && unit_of(p->behind) == Unit::kWord)
        ++words[p->behind], glued[p->behind] += !p->spaced, ++all;
    std::set<std::string_view> out;
    for (const auto& [word, number] : words) {
      const bool is_glued = glued[word] * 2 > number;
      const bool is_common = number > 1 && number * (is_glued ? 2 : 4) > all;
      if (texts_.size() == 1 || (is_common && texts_.size() >= (is_glued ? kFewGlued : kFewSpaced))) out.insert(word);
    }
    return out;
  }

  // What may stand before a number; a bound such as <5 is a name where there are few texts.
  bool is_sign(std::string_view before) const {
    constexpr std::string_view kSigns[] = {"%", "~", "\u2248", "<", ">", "\u2264", "\u2265", "<=", ">="};
    const auto at = std::find(std::begin(kSigns), std::end(kSigns), before);
    return at != std::end(kSigns) && (at - std::begin(kSigns) < 3 || texts_.size() >= kFewGlued || texts_.size() == 1);
  }

  void advise_number() {
    std::vector<std::optional<Parts>> parts;
    for (std::string_view text : others_) parts.push_back(parts_of(without_white_space(text)));
    const std::set<std::string_view> units = words_that_are_units(parts);
    std::set<std::string> strip;
    std::vector<std::string_view> samples, numbers;
    for (size_t i = 0; i < others_.size(); ++i) {
      const auto& p = parts[i];
      if (!p || !(p->before.empty() || is_currency(p->before) || is_sign(p->before))) continue;
      constexpr std::string_view kMultipliers[] = {"k", "K", "M", "B", "bn", "Bn", "mn", "Mn", "mio", "Mio", "Mio."};
      multiplied_ |= std::find(std::begin(kMultipliers), std::end(kMultipliers), p->behind) != std::end(kMultipliers);
      const Unit unit = p->behind.empty() ? Unit::kSign : unit_of(p->behind);
      if (unit == Unit::kNone || (unit == Unit::kWord && !units.contains(p->behind))) continue;
      numbers.push_back(p->number), samples.push_back(others_[i]);
      if (!p->before.empty()) strip.emplace(p->before);
      if (!p->behind.empty()) strip.emplace(p->behind), units_.emplace(p->behind);
      if (p->parentheses || p->sign_behind) strip.emplace("()");
    }
    const std::vector<NumberForm> forms = best_forms(numbers);
    if (forms.empty()) return;
    const auto reads = [&](std::string_view number) { return number_in(number, forms[0]).has_value(); };
    const auto readable = static_cast<size_t>(std::count_if(numbers.begin(), numbers.end(), reads));
    if (readable == 0 || !is_most(readable + static_cast<size_t>(out_.numbers))) return;
    if (strip.empty() && forms[0].decimal_comma == form_.decimal_comma && forms[0].thousands == 0) return;
    for (size_t i = 0; i < numbers.size() && out_.samples.size() < 3; ++i)
      if (reads(numbers[i])) out_.samples.emplace_back(samples[i]);
    say(forms, strip);
  }

  // Forms by which most of the numbers are read, with those that are numbers as they stand; several where the cells do
  // not tell.
  std::vector<NumberForm> best_forms(const std::vector<std::string_view>& numbers) const {
    std::vector<NumberForm> best;
    size_t most = 0;
    for (const bool other : {false, true})
      for (const char thousands : {'\0', ',', '.', ' ', '\'', '_'}) {
        const NumberForm form{form_.decimal_comma != other, thousands};
        if (thousands == (form.decimal_comma ? ',' : '.')) continue;
        const auto reads = [&](std::string_view text) { return number_in(text, form).has_value(); };
        size_t read = static_cast<size_t>(std::count_if(numbers.begin(), numbers.end(), reads));
        if (read == 0) continue;
        for (std::string_view text : texts_) read += number_in(text, form_) && reads(text);
        if (read > most) most = read, best.clear();
        if (read == most) best.push_back(form);
      }
    const auto all = best;
    const auto has = [&](bool comma, char thousands) {
      return std::find(all.begin(), all.end(), NumberForm{comma, thousands}) != all.end();
    };
    if (has(form_.decimal_comma, 0)) return {NumberForm{form_.decimal_comma}};
    std::erase_if(best, [&](const NumberForm& f) { return f.thousands != 0 && has(f.decimal_comma, 0); });
    std::erase_if(best, [&](const NumberForm& f) {
      return f.decimal_comma != form_.decimal_comma && has(form_.decimal_comma, f.thousands);
    });
    return best;
  }

  void say(const std::vector<NumberForm>& forms, const std::set<std::string>& strip) {
    std::string texts;
    for (const std::string& text : form_.strip) texts += (texts.empty() ? "" : ",") + text;
    for (const std::string& text : strip) texts += (texts.empty() ? "" : ",") + text;
    const auto options = [&](const NumberForm& form) {
      std::string out;
      if (form.decimal_comma != form_.decimal_comma)
        out += form.decimal_comma ? " --decimal-comma" : " the command without --decimal-comma";
      if (form.thousands != 0 && form.thousands != form_.thousands)
        out += " --thousands " + (form.thousands == ' ' ? "space" : shell_word({&form.thousands, 1}));
      if (!strip.empty()) out += " --strip " + shell_word(texts);
      return out.empty() ? "the same command" : out.substr(1);
    };
    constexpr const char* kReads = " reads such cells as numbers";
    if (forms.size() == 1) {
      out_.how = options(forms[0]) + kReads;
    } else {
      const bool first = forms[0].thousands != 0;
      out_.how = str(options(forms[first ? 0 : 1]), kReads, " with signs between thousands, ",
                     options(forms[first ? 1 : 0]), " with decimals");
    }
    if (multiplied_) out_.how += "; it does not multiply by what k and M stand for: write such numbers in full";
    if (units_.size() > 1)
      out_.how +=
          str("; it does not convert their units, such as '", *units_.begin(), "' and '", *units_.rbegin(), "'");
  }

  // Of few texts a feature each says as much; 2x and 3D are names.
  static constexpr size_t kFewSpaced = 3, kFewGlued = 8;

  const std::vector<std::string_view>& texts_;
  const std::string& name_;
  const NumberForm& form_;
  std::vector<std::string_view> others_;  // those that are no numbers as they stand
  std::set<std::string_view> units_;
  bool multiplied_ = false;  // some of them are by thousands, millions and the like
  CellAdvice out_;
};

}  // namespace

std::string shell_word(std::string_view text) {
  const auto is_plain = [](char c) {
    return is_decimal_digit(c) || is_word_letter(c) || std::string_view(",._-%/:+=@").find(c) != std::string_view::npos;
  };
  if (!text.empty() && std::all_of(text.begin(), text.end(), is_plain)) return std::string(text);
  if (text.find('\'') != text.npos && text.find_first_of("\"$`!\\") == text.npos) return str("\"", text, "\"");
  std::string out = "'";
  for (char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

CellAdvice advice_on(const std::vector<std::string_view>& texts, const std::string& name, const NumberForm& form) {
  return Advice(texts, name, form).take();
}

}  // namespace lockstep
