#include "data/import/images/mask_values.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <optional>
#include <set>

#include "core/base/error.h"
#include "data/import/line_reader.h"

namespace lockstep {
namespace {

constexpr std::string_view kBetween = " \t,;";

// Takes the next word of a line.
std::string_view word_of(std::string_view& line) {
  line.remove_prefix(std::min(line.find_first_not_of(kBetween), line.size()));
  const std::string_view word = line.substr(0, line.find_first_of(kBetween));
  line.remove_prefix(word.size());
  return word;
}

std::optional<uint32_t> colour_in(std::string_view& line) {
  uint32_t colour = 0;
  for (int i = 0; i < 3; ++i) {
    const std::string_view word = word_of(line);
    uint32_t value = 256;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
    if (error != std::errc() || end != word.data() + word.size() || value > 255) return std::nullopt;
    colour = colour << 8 | value;
  }
  return colour;
}

std::string colour_text(uint32_t colour) { return str(colour >> 16, " ", colour >> 8 & 255, " ", colour & 255); }

}  // namespace

bool MaskPalette::ignores() const {
  return std::any_of(classes.begin(), classes.end(), [](const auto& c) { return c.second == kNoMaskClass; });
}

MaskPalette read_mask_palette(const std::string& path) {
  MaskPalette out;
  std::set<std::string> names;
  LineReader lines(path);
  for (std::string_view line; lines.next(line);) {
    if (line.starts_with('#') || line.find_first_not_of(kBetween) == line.npos) continue;
    std::string_view rest = line;
    const auto colour = colour_in(rest);
    require(colour.has_value(), ExitCode::kBadData, lines.place(),
            ": expected red, green and blue, each from 0 to 255, then, if it has one, the name of a class");
    rest.remove_prefix(std::min(rest.find_first_not_of(kBetween), rest.size()));
    std::string name(rest.substr(0, rest.find_last_not_of(kBetween) + 1));
    const bool ignored = name == "ignore";
    require(out.classes.emplace(*colour, ignored ? kNoMaskClass : static_cast<uint8_t>(out.names.size())).second,
            ExitCode::kBadData, lines.place(), ": the colour ", colour_text(*colour), " is there twice");
    if (ignored) continue;
    if (name.empty()) name = str("class ", out.names.size());
    require(names.insert(name).second, ExitCode::kBadData, lines.place(), ": the class '", name, "' is there twice");
    out.names.push_back(std::move(name));
    require(out.names.size() < kNoMaskClass, ExitCode::kBadData, lines.place(), ": has more than ", kNoMaskClass - 1,
            " classes");
  }
  require(!out.names.empty(), ExitCode::kBadData, path, ": holds no colour of a class");
  return out;
}

ByteImage classes_by_palette(std::string_view file, const MaskPalette& palette, const std::string& name) {
  require(file.starts_with("\x89PNG"), ExitCode::kBadData, name, ": is no PNG file, in which colours are exact");
  const ByteImage colours = decode_image(file, 3, name);
  ByteImage out{colours.height, colours.width, 1, {}};
  out.bytes.resize(static_cast<size_t>(colours.height * colours.width));
  uint32_t last = ~0u;
  uint8_t value = 0;
  for (size_t i = 0; i < out.bytes.size(); ++i) {
    const uint8_t* c = colours.bytes.data() + 3 * i;
    const uint32_t colour = static_cast<uint32_t>(c[0]) << 16 | static_cast<uint32_t>(c[1]) << 8 | c[2];
    if (colour != last) {
      const auto found = palette.classes.find(colour);
      const auto width = static_cast<size_t>(out.width);
      require(found != palette.classes.end(), ExitCode::kBadData, name, ": has the colour ", colour_text(colour),
              " at row ", i / width, ", column ", i % width, ", which is not in the palette; a line '",
              colour_text(colour), " ignore' leaves such pixels out of loss and metric");
      last = colour, value = found->second;
    }
    out.bytes[i] = value;
  }
  return out;
}

bool is_black_and_white(const ByteImage& mask) {
  return std::all_of(mask.bytes.begin(), mask.bytes.end(), [](uint8_t v) { return v == 0 || v == 255; });
}

}  // namespace lockstep
