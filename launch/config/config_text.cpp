// The text output of Config: the resolved file, the canonical texts and their difference, the table of keys.
#include <algorithm>
#include <array>
#include <map>

#include "core/base/error.h"
#include "core/base/text_table.h"
#include "core/base/trace.h"
#include "core/io/json.h"
#include "launch/config/config.h"
#include "launch/config/config_source.h"

namespace lockstep {
namespace {

std::string meaning_of(const ConfigKey& k) {
  return str(k.doc, k.doc.empty() || k.condition.empty() ? "" : "; ", k.condition);
}

std::map<std::string, std::string, std::less<>> lines_of(std::string_view text) {
  std::map<std::string, std::string, std::less<>> out;
  for (size_t at = 0; at < text.size();) {
    size_t end = std::min(text.find('\n', at), text.size());
    std::string_view line = text.substr(at, end - at);
    size_t colon = line.find(": ");
    if (colon != std::string_view::npos) out[std::string(line.substr(0, colon))] = line.substr(colon + 2);
    at = end + 1;
  }
  return out;
}

std::string sorted_lines(std::vector<std::string> lines) {
  std::sort(lines.begin(), lines.end());
  std::string out;
  for (const auto& l : lines) out += l + "\n";
  return out;
}

// A file name in a comment must neither end the comment nor make the file invalid.
std::string comment(std::string text) {
  bool odd = !is_utf8(text);
  for (char& c : text)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F || (odd && (c & 0x80))) c = '?';
  return text;
}

// A section of the resolved file, with values and sections in the order in which they were bound.
struct Section {
  std::string name, line;  // `line`: the line of a value; empty for a section
  std::vector<Section> children;

  Section& child(const std::string& wanted) {
    for (auto& c : children)
      if (c.name == wanted) return c;
    return children.emplace_back(Section{wanted, "", {}});
  }
  void write(std::string& out, const std::string& indent) const {
    for (const auto& c : children) {
      if (c.line.empty()) {
        out += indent + c.name + ":\n";
        c.write(out, indent + "  ");
      } else {
        out += indent + c.line + "\n";
        for (const auto& element : c.children) out += indent + "  - " + element.line + "\n";
      }
    }
  }
};

}  // namespace

std::string Config::dump_yaml() const {
  Section root;
  for (const auto& v : values_) {
    Section* at = &root;
    for (size_t from = 0; from <= v.key.size();) {
      size_t dot = std::min(v.key.find('.', from), v.key.size());
      at = &at->child(v.key.substr(from, dot - from));
      from = dot + 1;
    }
    bool block = v.is_sections && !v.elements.empty();
    at->line = str(at->name, ":", block ? "" : " ", block ? "" : v.text, "  # ", comment(v.origin));
    if (block)
      for (const auto& e : v.elements) at->children.push_back(Section{"", e, {}});
  }
  std::string out;
  root.write(out, "");
  return out;
}

std::string Config::json() const {
  JsonObject all;
  for (const auto& v : values_) all.emplace_back(v.key, JsonText{json_line({{"value", v.json}, {"origin", v.origin}})});
  return json_line(all) + "\n";
}

std::string Config::text() const {
  std::vector<std::string> lines;
  for (const auto& v : values_) lines.push_back(v.key + ": " + v.text);
  return sorted_lines(std::move(lines));
}

std::string Config::math_text(std::string_view without, std::string_view as_given) const {
  trace_mark();
  std::vector<std::string> lines;
  for (const auto& v : values_)
    if (v.shapes_math && v.key != without) lines.push_back(v.key + ": " + (v.key == as_given ? v.text : v.math_text));
  return sorted_lines(std::move(lines));
}

std::vector<ConfigKey> Config::keys() const { return keys_; }

std::vector<ConfigDifference> diff(std::string_view text_a, std::string_view text_b) {
  auto a = lines_of(text_a), b = lines_of(text_b);
  std::vector<ConfigDifference> out;
  for (const auto& [key, value] : a) {
    auto other = b.find(key);
    if (other == b.end()) {
      out.push_back({key, value, "(absent)"});
    } else if (other->second != value) {
      out.push_back({key, value, other->second});
    }
  }
  for (const auto& [key, value] : b)
    if (!a.contains(key)) out.push_back({key, "(absent)", value});
  std::sort(out.begin(), out.end(), [](const auto& x, const auto& y) { return x.key < y.key; });
  return out;
}

std::string keys_table(const std::vector<ConfigKey>& keys) {
  constexpr int kColumns = 5;
  std::vector<std::array<std::string, kColumns + 1>> rows = {{"KEY", "TYPE", "DEFAULT", "UNIT", "ALLOWED", "MEANING"}};
  for (const auto& k : keys) rows.push_back({k.key, k.type, k.standard, k.unit, k.range, meaning_of(k)});
  std::array<size_t, kColumns> widths = {};
  for (const auto& row : rows)
    for (int c = 0; c < kColumns; ++c) widths[c] = std::max(widths[c], columns(row[c]));
  std::string out;
  for (const auto& row : rows) {
    std::string line;
    for (int c = 0; c < kColumns; ++c) line += row[c] + std::string(widths[c] - columns(row[c]) + 2, ' ');
    line += row[kColumns];
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + "\n";
  }
  return out;
}

std::string keys_paragraphs(const std::vector<ConfigKey>& keys, int width) {
  const auto columns_of_line = static_cast<size_t>(std::max(20, width));
  std::string out;
  for (const auto& k : keys) {
    std::string head = str(k.key, ": ", k.type);
    if (!k.unit.empty()) head += str(", ", k.unit);
    if (!k.range.empty()) head += str(", ", k.range);
    head += str("; default: ", k.standard.empty() ? "none" : k.standard);
    out += wrapped(head, columns_of_line, "", "    ");
    if (const std::string meaning = meaning_of(k); !meaning.empty())
      out += wrapped(meaning, columns_of_line, "    ", "    ");
  }
  return out;
}

std::string keys_json(const std::vector<ConfigKey>& keys) {
  std::vector<JsonObject> list;
  for (const auto& k : keys)
    list.push_back({{"key", k.key},
                    {"type", k.type},
                    {"default", k.standard},
                    {"unit", k.unit},
                    {"allowed", k.range},
                    {"doc", k.doc},
                    {"condition", k.condition},
                    {"shapes_math", k.shapes_math}});
  return json_list(list);
}

}  // namespace lockstep
