#include "core/io/coded_weights.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <set>
#include <utility>

#include "core/base/error.h"
#include "core/base/nf4_levels.h"
#include "core/io/json.h"

namespace lockstep {
namespace {

constexpr std::string_view kNf4State = ".quant_state.bitsandbytes__nf4", kFp4State = ".quant_state.bitsandbytes__fp4",
                           kRowScales = ".SCB", kRowFormat = ".weight_format";
// The other parts of a weight X in nf4, as X.absmax.
constexpr std::string_view kNf4Parts[] = {".absmax", ".quant_map", ".nested_absmax", ".nested_quant_map", kNf4State};
constexpr int64_t kLongestState = 1 << 16;  // bytes
constexpr int64_t kCodesAtOnce = 1 << 22;   // elements

struct Nf4State {
  int64_t block = 0, nested_block = 0;  // elements, and scales; 0: scales are in fp32
  double offset = 0;                    // what is added to scales in 8 bits
  Shape shape;
};

Nf4State parse_state(const std::string& text, const std::string& where) {
  const auto object = parse_json_object(text);
  require(object.has_value(), ExitCode::kBadData, where, ": is no JSON object with distinct keys");
  Nf4State out;
  out.block = json_int(*object, "blocksize", where);
  require(out.block >= 2 && out.block <= kLongestState && out.block % 2 == 0, ExitCode::kBadData, where,
          ": has a blocksize of ", out.block);
  const JsonValue* shape = find_member(*object, "shape");
  const auto* list = shape ? std::get_if<JsonText>(shape) : nullptr;
  const auto extents = list ? parse_json_array(list->text) : std::nullopt;
  require(extents && !extents->empty() && extents->size() <= Shape::kMaxRank, ExitCode::kBadData, where,
          ": has no list \"shape\" of 1 to ", Shape::kMaxRank, " extents");
  int64_t elements = 1;
  for (const JsonValue& extent : *extents) {
    const auto* n = std::get_if<int64_t>(&extent);
    require(n && *n > 0 && !__builtin_mul_overflow(elements, *n, &elements) && elements < INT64_MAX / 8,
            ExitCode::kBadData, where, ": its shape has an extent that is none, or is too large");
    out.shape.push_back(*n);
  }
  if (!find_member(*object, "nested_blocksize")) return out;
  out.nested_block = json_int(*object, "nested_blocksize", where);
  out.offset = json_number(*object, "nested_offset", where);
  require(out.nested_block > 0 && out.nested_block <= kLongestState &&
              std::abs(out.offset) <= std::numeric_limits<float>::max(),
          ExitCode::kBadData, where, ": has a nested_blocksize of ", out.nested_block, " and a nested_offset of ",
          out.offset);
  return out;
}

std::vector<float> floats_of(const StoredWeight& w, const ReadBytes& bytes) {
  std::vector<float> out(static_cast<size_t>(w.shape.numel()));
  bytes(w, 0, out.data(), w.shape.numel() * 4);
  return out;
}

}  // namespace

void CodedWeight::read(IndexRange elements, const ReadBytes& bytes, float* out) const {
  if (scales_.empty()) scales_ = read_scales_(bytes);
  const bool halves = weight_.type == "NF4";
  constexpr float kLevels[16] = LOCKSTEP_NF4_LEVELS;
  std::vector<uint8_t> codes;
  for_each_piece(elements, kCodesAtOnce, [&](IndexRange r) {
    const IndexRange stored = halves ? IndexRange{r.begin / 2, ceil_div(r.end, 2)} : r;
    codes.resize(static_cast<size_t>(stored.size()));
    bytes(weight_, stored.begin, codes.data(), stored.size());
    for (int64_t i = r.begin; i < r.end; ++i) {
      const uint8_t code = codes[static_cast<size_t>((halves ? i / 2 : i) - stored.begin)];
      const float level =
          halves ? kLevels[i % 2 == 0 ? code >> 4 : code & 15] : static_cast<float>(static_cast<int8_t>(code));
      out[i - elements.begin] = level * scales_[static_cast<size_t>(i / group_)];
    }
  });
}

namespace {

// What join_codes() does, with what it has found.
class CodedWeights {
 public:
  CodedWeights(const std::vector<StoredWeight>& weights, const ReadBytes& bytes,
               const std::function<std::string(const StoredWeight&)>& where)
      : bytes_(bytes), where_(where) {
    for (const StoredWeight& w : weights) by_name_.emplace(w.name, &w);
  }

  void look_at(const StoredWeight& w) {
    require(!w.name.ends_with(kFp4State), ExitCode::kBadData, where_(w),
            ": fp4 is not read; of bitsandbytes' codes nf4 and int8 are");
    if (w.name.ends_with(kNf4State)) add_nf4(w, w.name.substr(0, w.name.size() - kNf4State.size()));
    else if (w.name.ends_with(kRowScales)) add_int8(w, w.name.substr(0, w.name.size() - kRowScales.size()));
  }
  std::map<std::string, CodedWeight, std::less<>> coded;
  std::set<std::string, std::less<>> parts;  // tensors that are no weights of their own

 private:
  // The tensor `name`, which must have this type and number of elements.
  const StoredWeight& part(const StoredWeight& of, const std::string& name, const char* type, int64_t elements) const {
    const auto found = by_name_.find(name);
    require(found != by_name_.end(), ExitCode::kBadData, where_(of), ": tensor ", name, " beside it is missing");
    const StoredWeight& w = *found->second;
    require(w.type == type && w.shape.numel() == elements, ExitCode::kBadData, where_(w), ": is ", w.type, " ", w.shape,
            ", but ", of.name, " needs ", elements, " elements of ", type);
    return w;
  }

  void add(const StoredWeight& codes, const char* type, const Shape& shape, int64_t group,
           std::function<std::vector<float>(const ReadBytes&)> read_scales) {
    StoredWeight weight = codes;
    weight.type = type, weight.shape = shape;
    coded.emplace(codes.name, CodedWeight(std::move(weight), group, std::move(read_scales)));
  }

  void add_nf4(const StoredWeight& w, const std::string& name) {
    require(w.type == "U8" && w.shape.numel() <= kLongestState, ExitCode::kBadData, where_(w), ": is ", w.type, " ",
            w.shape, ", not a short text");
    std::string text(static_cast<size_t>(w.shape.numel()), '\0');
    bytes_(w, 0, text.data(), w.shape.numel());
    const Nf4State state = parse_state(text, where_(w));
    const int64_t n = state.shape.numel(), blocks = ceil_div(n, state.block);
    const StoredWeight& codes = part(w, name, "U8", ceil_div(n, 2));
    if (const std::string map = str(name, ".quant_map"); by_name_.contains(map)) {
      constexpr float kLevels[16] = LOCKSTEP_NF4_LEVELS;
      const StoredWeight& levels = part(w, map, "F32", 16);
      require(floats_of(levels, bytes_) == std::vector<float>(kLevels, kLevels + 16), ExitCode::kBadData,
              where_(levels), ": has other values than nf4");
    }
    if (state.nested_block == 0) {
      add(codes, "NF4", state.shape, state.block,
          [absmax = part(w, name + ".absmax", "F32", blocks)](const ReadBytes& read) {
            return floats_of(absmax, read);
          });
    } else {
      const StoredWeight absmax = part(w, name + ".absmax", "U8", blocks),
                         map = part(w, name + ".nested_quant_map", "F32", 256),
                         largest = part(w, name + ".nested_absmax", "F32", ceil_div(blocks, state.nested_block));
      add(codes, "NF4", state.shape, state.block, [=](const ReadBytes& read) {
        std::vector<uint8_t> of_blocks(static_cast<size_t>(blocks));
        read(absmax, 0, of_blocks.data(), blocks);
        const std::vector<float> levels = floats_of(map, read), of_groups = floats_of(largest, read);
        std::vector<float> out(of_blocks.size());
        for (size_t i = 0; i < out.size(); ++i)
          out[i] = levels[of_blocks[i]] * of_groups[i / static_cast<size_t>(state.nested_block)] +
                   static_cast<float>(state.offset);
        return out;
      });
    }
    for (std::string_view of : kNf4Parts) parts.insert(str(name, of));
  }

  void add_int8(const StoredWeight& w, const std::string& layer) {
    const auto found = by_name_.find(layer + ".weight");
    if (found == by_name_.end() || found->second->type != "I8") return;
    const StoredWeight& codes = *found->second;
    require(codes.shape.rank() == 2 && codes.shape.numel() > 0, ExitCode::kBadData, where_(codes), ": is ", codes.shape,
            ", no matrix of codes");
    if (const std::string format = str(layer, kRowFormat); by_name_.contains(format)) {
      const StoredWeight& order = part(codes, format, "U8", 1);
      uint8_t tiles = 0;
      bytes_(order, 0, &tiles, 1);
      require(tiles == 0, ExitCode::kBadData, where_(order), ": is ", static_cast<int64_t>(tiles),
              ": codes in a GPU's tiles are not read; load and save the model with bitsandbytes 0.45 or newer");
    }
    add(codes, "INT8", codes.shape, codes.shape[1],
        [scales = part(codes, w.name, "F32", codes.shape[0])](const ReadBytes& read) {
          std::vector<float> out = floats_of(scales, read);
          for (float& scale : out) scale /= 127;
          return out;
        });
    parts.insert({w.name, str(layer, kRowFormat)});
  }

  const ReadBytes& bytes_;
  const std::function<std::string(const StoredWeight&)>& where_;
  std::map<std::string, const StoredWeight*, std::less<>> by_name_;
};

}  // namespace

std::map<std::string, CodedWeight, std::less<>> join_codes(
    std::vector<StoredWeight>& weights, const ReadBytes& bytes,
    const std::function<std::string(const StoredWeight&)>& where) {
  CodedWeights found(weights, bytes, where);
  for (const StoredWeight& w : weights) found.look_at(w);
  if (found.coded.empty()) return {};
  std::erase_if(weights, [&](const StoredWeight& w) { return found.parts.contains(w.name); });
  for (StoredWeight& w : weights)
    if (const auto coded = found.coded.find(w.name); coded != found.coded.end()) w = coded->second.weight();
  return std::move(found.coded);
}

}  // namespace lockstep
