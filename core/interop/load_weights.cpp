#include "core/interop/load_weights.h"

#include <fnmatch.h>

#include <cmath>
#include <map>
#include <set>

#include "core/base/error.h"
#include "core/state/weight_coder.h"

namespace lockstep {
namespace {

using Layout = HfTensor::Layout;
constexpr int64_t kElementsAtOnce = 1 << 20;  // elements

// A folder of the bare model has no prefix; old files of BERT spell the parts of norms in another way.
const StoredWeight* find_weight(const HfModel& m, const WeightFiles& files, const std::string& name) {
  if (const StoredWeight* w = files.find(name)) return w;
  if (!m.prefix.empty() && name.starts_with(m.prefix))
    if (const StoredWeight* w = files.find(name.substr(m.prefix.size()))) return w;
  for (const auto& [now, once] :
       {std::pair(".LayerNorm.weight", ".LayerNorm.gamma"), std::pair(".LayerNorm.bias", ".LayerNorm.beta")})
    if (name.ends_with(now))
      if (const StoredWeight* w = files.find(name.substr(0, name.size() - std::string_view(now).size()) + once))
        return w;
  return nullptr;
}

Shape without_leading_ones(const Shape& s) {
  Shape out;
  for (int i = 0; i < s.rank(); ++i)
    if (s[i] != 1 || out.rank() > 0) out.push_back(s[i]);
  return out;
}

bool is_ignored(const HfModel& m, const std::string& name) {
  for (const std::string& pattern : m.ignored)
    if (::fnmatch(pattern.c_str(), name.c_str(), 0) == 0 ||
        ::fnmatch(pattern.c_str(), (m.prefix + name).c_str(), 0) == 0)
      return true;
  return false;
}

// Rows [rows) of a part, `from`, whose rows have `row` elements in our layout.
void read_rows(const HfTensor& t, const Shape& ours, const WeightFiles& files, const StoredWeight& from,
               IndexRange rows, float* out) {
  const int64_t row = ours.numel() / ours[0];
  if (t.layout == Layout::kTransposed) {  // our rows are columns there
    const int64_t columns = from.shape[1];
    std::vector<float> line(static_cast<size_t>(rows.size()));
    for (int64_t i = 0; i < from.shape[0]; ++i) {
      files.read(from, {i * columns + rows.begin, i * columns + rows.end}, line.data());
      for (int64_t r = 0; r < rows.size(); ++r) out[r * row + i] = line[static_cast<size_t>(r)];
    }
    return;
  }
  if (t.layout == Layout::kSame) return files.read(from, {rows.begin * row, rows.end * row}, out);
  const int64_t channels = from.shape[1], pixels = from.shape[2] * from.shape[3];
  std::vector<float> there(static_cast<size_t>(rows.size() * row));
  files.read(from, {rows.begin * row, rows.end * row}, there.data());
  for (int64_t r = 0; r < rows.size(); ++r)
    for (int64_t c = 0; c < channels; ++c)
      for (int64_t p = 0; p < pixels; ++p)
        out[r * row + p * channels + c] = there[static_cast<size_t>(r * row + c * pixels + p)];
}

void require_copies(const HfModel& m, const WeightFiles& files) {
  for (const auto& [copy, original] : m.copies) {
    const StoredWeight* a = files.find(copy);
    const StoredWeight* b = find_weight(m, files, original);
    if (!a || !b) continue;
    bool equal = a->shape == b->shape;
    std::vector<float> x(static_cast<size_t>(kElementsAtOnce)), y(x.size());
    for_each_piece({0, a->shape.numel()}, kElementsAtOnce, [&](IndexRange r) {
      if (!equal) return;
      files.read(*a, r, x.data());
      files.read(*b, r, y.data());
      equal = std::equal(x.begin(), x.begin() + r.size(), y.begin());
    });
    require(equal, ExitCode::kBadData, files.file_of(*a), ": tensor ", copy, " differs from ", original,
            ", to which it is tied by the architecture or tie_word_embeddings");
  }
}

}  // namespace

std::vector<StateEntry> entries_of(const Module& model) {
  std::vector<StateEntry> out;
  for (auto& p : model.parameters())
    out.push_back({str(kParameters, p.name), p.parameter->value.shape(), 0, p.parameter->value.detach().flatten()});
  for (auto& b : model.buffers())
    out.push_back({str(kBuffers, b.name), b.buffer->value.shape(), 0, b.buffer->value.flatten()});
  return out;
}

HfModel with_own_names(const HfModel& m, const std::vector<StateEntry>& entries) {
  HfModel out = m;
  if (!m.family.empty() || !m.tensors.empty()) return out;
  std::set<std::string> names;
  for (const StateEntry& e : entries)
    if (names.insert(e.name).second) out.tensors.push_back({e.name, {name_in_model(e.name)}});
  return out;
}

void require_weights_for(const HfModel& model, const WeightFiles& files, const std::vector<StateEntry>& entries) {
  const HfModel m = with_own_names(model, entries);
  std::map<std::string, Shape> wanted;
  for (const StateEntry& e : entries) wanted.emplace(e.name, e.region.shape);
  std::vector<std::string> differences;
  std::set<const StoredWeight*> used;
  std::set<std::string> named;
  for (const HfTensor& t : m.tensors) {
    named.insert(t.name);
    const auto ours = wanted.find(t.name);
    if (t.head && ours == wanted.end()) {
      for (const std::string& name : t.from) used.insert(find_weight(m, files, name));
      continue;
    }
    for (const std::string& name : t.from) {
      const StoredWeight* w = find_weight(m, files, name);
      if (w) used.insert(w);
      if (!w) {
        differences.push_back(str(name, " is missing"));
      } else if (ours == wanted.end()) {
        differences.push_back(str(name, " is not in this model"));
      } else {
        const Shape here = t.shape_there(ours->second);
        if (!(without_leading_ones(w->shape) == without_leading_ones(here)))
          differences.push_back(str(name, " is ", w->shape, " there and would be ", here, " here"));
      }
    }
  }
  for (const auto& [name, shape] : wanted)
    if (!named.contains(name)) differences.push_back(str(name, " ", shape, " has no counterpart there"));
  std::set<std::string_view> copies;
  for (const auto& [copy, original] : m.copies) copies.insert(copy);
  for (const StoredWeight& w : files.weights())
    if (!used.contains(&w) && !copies.contains(w.name) && !is_ignored(m, w.name))
      differences.push_back(str(w.name, " ", w.shape, " is only there"));
  if (differences.empty()) {
    for (const StoredWeight* w : used)
      if (w) files.require_readable(*w);
    return;
  }
  std::string text;
  for (size_t i = 0; i < differences.size() && i < 5; ++i) text += str(i ? "; " : "", differences[i]);
  if (differences.size() > 5) text += str("; and ", differences.size() - 5, " more");
  throw Error(ExitCode::kBadData, str(files.path(), ": its tensors are not those of this ",
                                      m.family.empty() ? "" : m.family + " ", "model: ", text));
}

void read_weight(const HfTensor& t, const Shape& shape, const HfModel& m, const WeightFiles& files, IndexRange range,
                 float* out) {
  if (range.empty()) return;
  const auto parts = static_cast<int64_t>(t.from.size());
  const int64_t row = shape.numel() / shape[0], rows_a_part = shape[0] / parts;
  if (t.layout == Layout::kSame && parts == 1) return files.read(*find_weight(m, files, t.from[0]), range, out);
  const IndexRange all{range.begin / row, ceil_div(range.end, row)};
  const int64_t most = std::max<int64_t>(1, kElementsAtOnce / row);
  std::vector<float> block;
  for (int64_t at = all.begin; at < all.end;) {
    const int64_t part = at / rows_a_part;
    const IndexRange rows{at, std::min({at + most, all.end, (part + 1) * rows_a_part})};
    block.resize(static_cast<size_t>(rows.size() * row));
    read_rows(t, shape, files, *find_weight(m, files, t.from[static_cast<size_t>(part)]),
              {rows.begin - part * rows_a_part, rows.end - part * rows_a_part}, block.data());
    const IndexRange mine = intersect(range, {rows.begin * row, rows.end * row});
    std::copy_n(block.data() + (mine.begin - rows.begin * row), mine.size(), out + (mine.begin - range.begin));
    at = rows.end;
  }
}

DType stored_type(const HfModel& m, const std::function<bool(const std::string&)>& counts) {
  std::set<std::string> types;
  try {
    const WeightFiles files = WeightFiles::open(m.folder);
    for (const HfTensor& t : m.tensors)
      if (t.name.starts_with(kParameters) && counts(name_in_model(t.name)))
        for (const std::string& name : t.from)
          if (const StoredWeight* w = find_weight(m, files, name)) types.insert(w->type);
  } catch (const Error& e) {
    if (e.code() != ExitCode::kMissingInput) throw;
  }
  for (const char* codes : {"NF4", "INT8"}) types.erase(codes);  // which are kept as codes, or as what they decode to
  if (types == std::set<std::string>{"BF16"}) return DType::kBFloat16;
  return types == std::set<std::string>{"F16"} ? DType::kFloat16 : DType::kFloat32;
}

namespace {

// Elements [range) of a region. Of a box, rows are read with what lies between them.
void read_region(const HfTensor& t, const Region& region, const HfModel& m, const WeightFiles& files, IndexRange range,
                 float* out) {
  if (region.is_whole()) return read_weight(t, region.shape, m, files, range, out);
  const int64_t last = region.element(range.end - 1) + 1;
  std::vector<float> rows;
  IndexRange held;
  for_each_run(region, range, [&](int64_t at, int64_t element, int64_t n) {
    for (int64_t i = element, k = 0; i < element + n; i += k) {
      if (i >= held.end) {
        held = {i, std::min(i + kElementsAtOnce, last)};
        rows.resize(static_cast<size_t>(held.size()));
        read_weight(t, region.shape, m, files, held, rows.data());
      }
      k = std::min(element + n, held.end) - i;
      std::copy_n(rows.data() + (i - held.begin), k, out + (at + i - element - range.begin));
    }
  });
}

void require_finite(const HfTensor& t, const HfModel& m, const float* values, int64_t n) {
  for (int64_t i = 0; i < n; ++i)
    require(std::isfinite(values[i]), ExitCode::kBadData, m.folder, ": ", t.from[0],
            " holds a value that is not finite: ", values[i]);
}

// Of the whole tensor: a region may hold parts of its chunks alone.
Hash128 digest_of_weight(const HfTensor& t, const Shape& shape, const HfModel& m, const WeightFiles& files) {
  Hash128 sum;
  for_each_piece({0, shape.numel()}, kElementsAtOnce, [&](IndexRange r) {
    std::vector<float> values(static_cast<size_t>(r.size()));
    read_weight(t, shape, m, files, r, values.data());
    sum += digest_of(t.name, r.begin, values.data(), r.size());
  });
  return sum;
}

}  // namespace

Hash128 load_weights(const HfModel& model, const std::vector<StateEntry>& entries) {
  const HfModel m = with_own_names(model, entries);
  const WeightFiles files = WeightFiles::open(m.folder);
  require_weights_for(m, files, entries);
  require_copies(m, files);
  std::map<std::string, const HfTensor*> tensors;
  for (const HfTensor& t : m.tensors) tensors[t.name] = &t;
  Hash128 sum;
  for (const StateEntry& e : entries) {
    const HfTensor& t = *tensors.at(e.name);
    if (is_coded(e.data.dtype())) {
      sum += fill_coded(e, [&](IndexRange r, float* out) {
        read_weight(t, e.region.shape, m, files, r, out);
        require_finite(t, m, out, r.size());
      });
      continue;
    }
    for_each_piece({e.offset, e.end()}, kElementsAtOnce, [&](IndexRange r) {
      std::vector<float> values(static_cast<size_t>(r.size()));
      read_region(t, e.region, m, files, r, values.data());
      require_finite(t, m, values.data(), r.size());
      if (e.region.is_whole()) sum += digest_of(e.name, r.begin, values.data(), r.size());
      e.set_values(r.begin - e.offset, Tensor::of(std::move(values), {r.size()}));
    });
    if (!e.region.is_whole() && e.begins_tensor()) sum += digest_of_weight(t, e.region.shape, m, files);
  }
  return sum;
}

}  // namespace lockstep
