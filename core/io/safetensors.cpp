#include "core/io/safetensors.h"

#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <set>
#include <tuple>

#include "core/base/log.h"
#include "core/base/plain_file.h"
#include "core/base/system_call.h"
#include "core/io/half.h"
#include "core/io/json.h"
#include "core/io/llmc_weights.h"
#include "core/io/numpy_file.h"
#include "core/io/pending_file.h"
#include "core/io/zip.h"

namespace lockstep {
namespace fs = std::filesystem;
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr int64_t kLongestHeader = 100'000'000;  // bytes, as in the format's own reader
constexpr int64_t kLongestIndex = 100'000'000;
constexpr int64_t kPieceBytes = 4 << 20;
constexpr const char* kMetadata = "__metadata__";

// Bits of an element; 0 for a type that the format does not have.
int64_t bits_of(std::string_view type) {
  static constexpr std::pair<std::string_view, int64_t> kTypes[] = {
      {"BOOL", 8},    {"F4", 4},      {"F6_E2M3", 6},     {"F6_E3M2", 6},     {"U8", 8},      {"I8", 8},
      {"F8_E5M2", 8}, {"F8_E4M3", 8}, {"F8_E5M2FNUZ", 8}, {"F8_E4M3FNUZ", 8}, {"F8_E8M0", 8}, {"I16", 16},
      {"U16", 16},    {"F16", 16},    {"BF16", 16},       {"I32", 32},        {"U32", 32},    {"F32", 32},
      {"C64", 64},    {"F64", 64},    {"I64", 64},        {"U64", 64}};
  for (const auto& [name, bits] : kTypes)
    if (name == type) return bits;
  return 0;
}

template <class Stored, class Convert>
void convert(const std::string& bytes, float* out, const Convert& to_float) {
  for (size_t i = 0; i < bytes.size() / sizeof(Stored); ++i) {
    Stored v;
    std::memcpy(&v, bytes.data() + i * sizeof v, sizeof v);
    out[i] = to_float(v);
  }
}

std::vector<int64_t> integers(const JsonObject& object, std::string_view key, const std::string& where) {
  const JsonValue* v = find_member(object, key);
  const auto* text = v ? std::get_if<JsonText>(v) : nullptr;
  const auto list = text ? parse_json_array(text->text) : std::nullopt;
  require(list.has_value(), ExitCode::kBadData, where, ": has no list \"", key, "\"");
  std::vector<int64_t> out;
  for (const JsonValue& element : *list) {
    const auto* number = std::get_if<int64_t>(&element);
    require(number && *number >= 0, ExitCode::kBadData, where, ": \"", key,
            "\" holds what is no integer from 0 to 2^63");
    out.push_back(*number);
  }
  return out;
}

struct Entry {
  StoredWeight weight;
  int64_t end = 0;
};

Entry entry_of(const std::string& file, const std::string& name, const JsonValue& value) {
  const std::string where = str(file, ": tensor ", name);
  const auto* text = std::get_if<JsonText>(&value);
  const auto object = text ? parse_json_object(text->text) : std::nullopt;
  require(object.has_value(), ExitCode::kBadData, where, ": is described by no JSON object with distinct keys");
  Entry e;
  e.weight.name = name;
  e.weight.type = json_text(*object, "dtype", where);
  const int64_t bits = bits_of(e.weight.type);
  require(bits > 0, ExitCode::kBadData, where, ": the format has no type ", e.weight.type);
  const auto shape = integers(*object, "shape", where), offsets = integers(*object, "data_offsets", where);
  require(shape.size() <= Shape::kMaxRank, ExitCode::kBadData, where, ": has ", static_cast<int64_t>(shape.size()),
          " dimensions, and at most ", Shape::kMaxRank, " are read");
  require(offsets.size() == 2 && offsets[0] <= offsets[1], ExitCode::kBadData, where,
          ": \"data_offsets\" is no begin and end");
  e.weight.shape = Shape(shape);
  e.weight.begin = offsets[0];
  e.end = offsets[1];
  int64_t size = bits;  // of all elements, in bits; an overflow is refused even where another extent is 0
  for (int64_t extent : shape)
    require(!__builtin_mul_overflow(size, std::max<int64_t>(extent, 1), &size), ExitCode::kBadData, where,
            ": its shape ", e.weight.shape, " overflows");
  if (std::find(shape.begin(), shape.end(), 0) != shape.end()) size = 0;
  require(size % 8 == 0 && size / 8 == e.end - e.weight.begin, ExitCode::kBadData, where, ": ", e.weight.type, " ",
          e.weight.shape, " does not take the ", e.end - e.weight.begin, " bytes that it has");
  return e;
}

// The tensors of one file by place, with places counted from the file's begin.
std::vector<StoredWeight> read_header(const std::string& path) {
  const InputFile file(path);
  uint64_t length = 0;
  require(file.size >= 8, ExitCode::kBadData, path, ": has ", file.size, " bytes, too few for a safetensors file");
  file.read(0, &length, 8);
  require(length <= static_cast<uint64_t>(kLongestHeader), ExitCode::kBadData, path, ": says that its header has ",
          length, " bytes, more than ", kLongestHeader, ": no safetensors file, or a damaged one");
  const auto header = static_cast<int64_t>(length);
  require(header <= file.size - 8, ExitCode::kBadData, path, ": says that its header has ", header,
          " bytes, but ends before: truncated or damaged");
  std::string text(length, '\0');
  file.read(8, text.data(), header);
  const auto object = text.starts_with('{') ? parse_json_object(text) : std::nullopt;
  require(object.has_value(), ExitCode::kBadData, path,
          ": its header is no JSON object with distinct keys; no safetensors file, or a damaged one");
  std::vector<Entry> entries;
  for (const auto& [name, value] : *object) {
    if (name != kMetadata) {
      entries.push_back(entry_of(path, name, value));
      continue;
    }
    const auto* members = std::get_if<JsonText>(&value);
    const auto metadata = members ? parse_json_object(members->text) : std::nullopt;
    require(metadata && std::all_of(metadata->begin(), metadata->end(),
                                    [](auto& m) { return std::holds_alternative<std::string>(m.second); }),
            ExitCode::kBadData, path, ": ", kMetadata, " is no object of texts with distinct keys");
  }
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return std::tie(a.weight.begin, a.end, a.weight.name) < std::tie(b.weight.begin, b.end, b.weight.name);
  });
  int64_t at = 0;
  std::vector<StoredWeight> out;
  for (Entry& e : entries) {
    require(e.weight.begin == at, ExitCode::kBadData, path, ": tensor ", e.weight.name, " begins at byte ",
            e.weight.begin, ", but those before it end at ", at,
            ": tensors must follow each other without gap or overlap");
    at = e.end;
    e.weight.begin += 8 + header;
    out.push_back(std::move(e.weight));
  }
  require(at == file.size - 8 - header, ExitCode::kBadData, path, ": its tensors end at byte ", at, " of ",
          file.size - 8 - header, ": truncated, or with bytes of no tensor");
  return out;
}

// Of an archive of NumPy: "F32" for "f4".
std::vector<StoredWeight> npz_weights(const std::string& path) {
  const NumpyFile file(path);
  std::vector<StoredWeight> out;
  for (const std::string& name : file.names()) {
    const NumpyArray a = file.array(name);
    const char* kind = a.type[0] == 'f' ? "F" : a.type[0] == 'i' ? "I" : "U";
    out.push_back({name, str(kind, 8 * a.item), a.shape, 0, a.begin});
  }
  return out;
}

std::vector<StoredWeight> weights_in(const std::string& path) {
  if (has_llmc_magic(path)) return llmc_weights(path);
  return is_zip_file(path) ? npz_weights(path) : read_header(path);
}

}  // namespace

struct WeightFiles::OpenFile {
  OpenFile(size_t number, const std::string& path) : index(number) {
    if (is_zip_file(path)) numpy.emplace(path);
    else file.emplace(path);
  }
  // Bytes of its elements, from `offset` on.
  void read(const StoredWeight& w, int64_t offset, void* to, int64_t bytes) const {
    if (file) return file->read(w.begin + offset, to, bytes);
    NumpyArray a;
    a.name = w.name;
    a.begin = w.begin;
    numpy->read(a, {offset, offset + bytes}, to);
  }
  size_t index;
  std::optional<InputFile> file;  // or
  std::optional<NumpyFile> numpy;
};

WeightFiles WeightFiles::open(const std::string& path) {
  WeightFiles out;
  out.path_ = path;
  std::error_code error;
  if (!fs::is_directory(path, error)) {
    out.add_file(path);
  } else {
    const std::string file = str(path, "/", kWeightsFile), index = str(path, "/", kWeightsIndex);
    const bool has_file = fs::exists(file, error), has_index = fs::exists(index, error);
    const bool pickled = fs::exists(str(path, "/pytorch_model.bin"), error) ||
                         fs::exists(str(path, "/pytorch_model.bin.index.json"), error);
    require(has_file || has_index || !pickled, ExitCode::kMissingInput, path, ": holds pytorch_model.bin and no ",
            kWeightsFile, "; a pickle, which can run any program, is not read: python3 -c \"import transformers; ",
            "transformers.AutoModel.from_pretrained('", path, "').save_pretrained('", path,
            "-safe')\" writes the model ",
            "(without its head; AutoModelForCausalLM and the like keep it), then copy its tokenizer's files");
    require(has_file || has_index, ExitCode::kMissingInput, path, ": holds neither ", kWeightsFile, " nor ",
            kWeightsIndex);
    if (has_file && has_index)
      log_warning_once(str(file, ": is read, as transformers does, and ", kWeightsIndex,
                           " beside it is not; remove the one that is out of date"));
    if (has_file) out.add_file(file);
    else out.add_index(path);
  }
  out.join_codes();
  return out;
}

void WeightFiles::join_codes() {
  coded_ = lockstep::join_codes(weights_, bytes_reader(),
                                [this](const StoredWeight& w) { return str(file_of(w), ": tensor ", w.name); });
  if (coded_.empty()) return;
  by_name_.clear();
  for (size_t i = 0; i < weights_.size(); ++i) by_name_.emplace(weights_[i].name, i);
}

ReadBytes WeightFiles::bytes_reader() const {
  return [this](const StoredWeight& w, int64_t offset, void* to, int64_t bytes) { read_bytes(w, offset, to, bytes); };
}

void WeightFiles::read_bytes(const StoredWeight& w, int64_t offset, void* to, int64_t bytes) const {
  if (!open_ || open_->index != w.file) open_ = std::make_shared<OpenFile>(w.file, file_of(w));
  open_->read(w, offset, to, bytes);
}

void WeightFiles::add_file(const std::string& path) {
  for (StoredWeight& w : weights_in(path)) {
    w.file = files_.size();
    const auto [other, added] = by_name_.emplace(w.name, weights_.size());
    if (!added)
      throw Error(ExitCode::kBadData,
                  str(path, ": tensor ", w.name, " is in ", file_of(weights_[other->second]), ", too"));
    weights_.push_back(std::move(w));
  }
  files_.push_back(path);
}

void WeightFiles::add_index(const std::string& folder) {
  const std::string path = str(folder, "/", kWeightsIndex);
  const auto object = parse_json_object(InputFile(path).text(kLongestIndex));
  const JsonValue* map = object ? find_member(*object, "weight_map") : nullptr;
  const auto* members = map ? std::get_if<JsonText>(map) : nullptr;
  const auto weight_map = members ? parse_json_object(members->text) : std::nullopt;
  require(weight_map.has_value(), ExitCode::kBadData, path, ": has no object \"weight_map\" with distinct keys");
  std::set<std::string> names;
  for (const auto& [name, value] : *weight_map) {
    const auto* of = std::get_if<std::string>(&value);
    require(of && of->ends_with(".safetensors") && of->find_first_of(std::string_view("/\\\0", 3)) == of->npos &&
                !of->starts_with('.'),
            ExitCode::kBadData, path, ": tensor ", name, " is in no file NAME.safetensors of this folder");
    names.insert(*of);
  }
  for (const std::string& name : names) add_file(str(folder, "/", name));
  for (const auto& [name, value] : *weight_map) {
    const auto& of = std::get<std::string>(value);
    const StoredWeight* w = find(name);
    require(w && file_of(*w) == str(folder, "/", of), ExitCode::kBadData, path, ": tensor ", name, " is not in ", of);
  }
  if (weights_.size() == weight_map->size()) return;
  std::set<std::string_view> known;
  for (const auto& [name, value] : *weight_map) known.insert(name);
  for (const StoredWeight& w : weights_)
    require(known.contains(w.name), ExitCode::kBadData, path, ": does not name tensor ", w.name, " of ", file_of(w));
}

const StoredWeight* WeightFiles::find(std::string_view name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : &weights_[found->second];
}

void WeightFiles::require_readable(const StoredWeight& w) const {
  const bool known = w.type == "F32" || w.type == "F16" || w.type == "BF16" || w.type == "F64";
  require(known || coded_.contains(w.name), ExitCode::kBadData, file_of(w), ": tensor ", w.name, " has type ", w.type,
          "; weights are read from F32, F16, BF16 and F64, and from bitsandbytes' nf4 and int8");
}

void WeightFiles::read(const StoredWeight& w, IndexRange range, float* out) const {
  check(0 <= range.begin && range.begin <= range.end && range.end <= w.shape.numel(), "elements [", range.begin, ", ",
        range.end, ") of ", w.name, " ", w.shape);
  if (const auto coded = coded_.find(w.name); coded != coded_.end()) {
    if (const auto last = coded_.find(coded_last_); last != coded_.end() && last != coded) last->second.forget();
    coded_last_ = w.name;
    return coded->second.read(range, bytes_reader(), out);
  }
  require_readable(w);
  const int64_t size = bits_of(w.type) / 8;
  if (w.type == "F32") return read_bytes(w, range.begin * size, out, range.size() * size);
  std::string bytes;
  const int64_t most = kPieceBytes / size;
  for_each_piece(range, most, [&](IndexRange r) {
    bytes.resize(static_cast<size_t>(r.size() * size));
    read_bytes(w, r.begin * size, bytes.data(), r.size() * size);
    float* to = out + (r.begin - range.begin);
    if (w.type == "F16") convert<uint16_t>(bytes, to, from_fp16_bits);
    else if (w.type == "F64") convert<double>(bytes, to, [](double v) { return static_cast<float>(v); });
    else convert<uint16_t>(bytes, to, from_bf16_bits);
  });
}

struct WeightWriter::State {
  State(const std::string& path, std::vector<WeightToWrite> all) : weights(std::move(all)), pending(path, false) {
    file.exceptions(std::ios::goodbit);
    file.open(pending.temporary(), std::ios::binary | std::ios::in | std::ios::out);
  }
  void put(const void* bytes, int64_t size) {
    file.write(static_cast<const char*>(bytes), size);
    require_done(file.good(), ExitCode::kStorage, pending.temporary(), ": cannot be written");
  }
  void elements(const float* values, int64_t count) {
    while (count > 0) {
      const int64_t n = std::min(count, begin_elements());
      check(weights[at].type != "I64", "elements of floating point for ", weights[at].name);
      if (weights[at].type == "F32") {
        put(values, n * 4);
      } else {
        std::vector<uint16_t> halves(static_cast<size_t>(n));
        std::transform(values, values + n, halves.begin(), to_bf16_bits);
        put(halves.data(), n * 2);
      }
      values += n, count -= n, done += n;
    }
  }
  void elements(const int64_t* values, int64_t count) {
    while (count > 0) {
      const int64_t n = std::min(count, begin_elements());
      check(weights[at].type == "I64", "integers for ", weights[at].name);
      put(values, n * 8);
      values += n, count -= n, done += n;
    }
  }
  // Goes to the tensor that the next element is of; returns how many it lacks.
  int64_t begin_elements() {
    while (at < weights.size() && done == weights[at].shape.numel()) ++at, done = 0;
    check(at < weights.size(), "elements for no tensor");
    return weights[at].shape.numel() - done;
  }

  std::vector<WeightToWrite> weights;
  PendingFile pending;
  std::ofstream file;
  size_t at = 0;     // the tensor that comes next, and
  int64_t done = 0;  // the elements of it that are there
};

WeightWriter::~WeightWriter() = default;
WeightWriter::WeightWriter(WeightWriter&&) noexcept = default;

WeightWriter::WeightWriter(const std::string& path, std::vector<WeightToWrite> weights,
                           const std::vector<std::pair<std::string, std::string>>& metadata)
    : state_(std::make_unique<State>(path, std::move(weights))) {
  JsonObject header;
  JsonObject texts;
  for (const auto& [key, value] : metadata) texts.emplace_back(key, value);
  if (!texts.empty()) header.emplace_back(kMetadata, JsonText{json_line(texts)});
  int64_t at = 0;
  for (const WeightToWrite& w : state_->weights) {
    check(w.type == "F32" || w.type == "BF16" || w.type == "I64", "type ", w.type, " is not written");
    const int64_t end = at + w.shape.numel() * bits_of(w.type) / 8;
    const std::vector<JsonValue> extents(w.shape.begin(), w.shape.end());
    header.emplace_back(w.name, JsonText{json_line({{"dtype", w.type},
                                                    {"shape", json_array(extents)},
                                                    {"data_offsets", json_array(std::vector<JsonValue>{at, end})}})});
    at = end;
  }
  std::string text = json_line(header);
  text.resize(static_cast<size_t>(round_up(static_cast<int64_t>(text.size()), 8)), ' ');
  const uint64_t length = text.size();
  state_->put(&length, 8);
  state_->put(text.data(), static_cast<int64_t>(text.size()));
}

void WeightWriter::write(const float* values, int64_t count) { state_->elements(values, count); }
void WeightWriter::write(const int64_t* values, int64_t count) { state_->elements(values, count); }

void WeightWriter::commit() {
  State& s = *state_;
  while (s.at < s.weights.size() && s.done == s.weights[s.at].shape.numel()) ++s.at, s.done = 0;
  check(s.at == s.weights.size(), "elements are missing from ", s.at < s.weights.size() ? s.weights[s.at].name : "");
  s.file.close();
  require_done(s.file.good(), ExitCode::kStorage, s.pending.temporary(), ": cannot be written");
  s.pending.commit();
}

std::vector<std::vector<size_t>> files_for(const std::vector<WeightToWrite>& weights, int64_t bytes_a_file) {
  std::vector<std::vector<size_t>> out;
  int64_t used = 0;
  for (size_t i = 0; i < weights.size(); ++i) {
    const int64_t bytes = weights[i].shape.numel() * bits_of(weights[i].type) / 8;
    if (out.empty() || used + bytes > bytes_a_file) out.emplace_back(), used = 0;
    out.back().push_back(i);
    used += bytes;
  }
  return out;
}

std::string weights_file_name(size_t index, size_t count) {
  if (count == 1) return kWeightsFile;
  char name[64];
  snprintf(name, sizeof name, "model-%05zu-of-%05zu.safetensors", index + 1, count);
  return name;
}

std::string weights_index(const std::vector<WeightToWrite>& weights, const std::vector<std::vector<size_t>>& files) {
  int64_t bytes = 0, elements = 0;
  JsonObject map;
  for (size_t f = 0; f < files.size(); ++f)
    for (size_t i : files[f]) {
      const int64_t n = weights[i].shape.numel();
      elements += n;
      bytes += n * bits_of(weights[i].type) / 8;
      map.emplace_back(weights[i].name, weights_file_name(f, files.size()));
    }
  return json_line({{"metadata", JsonText{json_line({{"total_parameters", elements}, {"total_size", bytes}})}},
                    {"weight_map", JsonText{json_line(map)}}}) +
         "\n";
}

}  // namespace lockstep
