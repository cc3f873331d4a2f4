#include "data/import/images/box_files.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <unordered_map>

#include "core/base/error.h"
#include "core/base/plain_file.h"
#include "core/io/json.h"
#include "data/import/line_reader.h"

namespace lockstep {
namespace {

constexpr int64_t kMostJsonBytes = int64_t{2} << 30;

// By its edges, in parts of the image.
void add_box(int64_t label, double left, double top, double right, double bottom, Boxes& to) {
  constexpr double kRounding = 1e-5;  // of a file's decimals
  const auto inside = [](double at) { return std::clamp(at, 0.0, 1.0); };
  const double l = inside(left), t = inside(top), r = inside(right), b = inside(bottom);
  if (r <= l || b <= t) {
    ++to.outside;
    return;
  }
  to.cut += l - left > kRounding || t - top > kRounding || right - r > kRounding || bottom - b > kRounding;
  for (double value : {static_cast<double>(label), (l + r) / 2, (t + b) / 2, r - l, b - t})
    to.rows.push_back(static_cast<float>(value));
}

// Hands on each object of a list that is a member of the file's object.
template <class Use>
void visit_list(const JsonObject& file, const std::string& key, const std::string& path, Use use) {
  int64_t index = 0;
  const bool good = visit_json_list(json_text(file, key, path),
                                    [&](JsonObject&& object) { use(object, str(path, ": ", key, " ", index++)); });
  require(good, ExitCode::kBadData, path, ": '", key, "' is no list of objects");
}

std::vector<double> numbers_in(const JsonObject& object, const std::string& key, const std::string& where) {
  const auto list = parse_json_array(json_text(object, key, where));
  std::vector<double> out;
  for (const JsonValue& value : list.value_or(std::vector<JsonValue>())) {
    if (const auto* integer = std::get_if<int64_t>(&value)) out.push_back(static_cast<double>(*integer));
    if (const auto* number = std::get_if<double>(&value)) out.push_back(*number);
  }
  const bool finite = std::all_of(out.begin(), out.end(), [](double v) { return std::abs(v) < 1e9; });
  require(list && out.size() == list->size() && out.size() == 4 && finite, ExitCode::kBadData, where, ": '", key,
          "' is no list of 4 numbers: left, top, width, height");
  return out;
}

}  // namespace

CocoFile read_coco_boxes(const std::string& path) {
  const auto file = parse_json_object(InputFile(path).text(kMostJsonBytes));
  require(file.has_value(), ExitCode::kBadData, path, ": is no JSON object");
  CocoFile out;
  std::map<int64_t, std::string> names;
  visit_list(*file, "categories", path, [&](const JsonObject& o, const std::string& where) {
    const int64_t id = json_int(o, "id", where);
    const std::string& name = json_text(o, "name", where);
    require(name.find('\n') == name.npos, ExitCode::kBadData, where, ": its name has a line end in it");
    require(names.emplace(id, name).second, ExitCode::kBadData, where, ": the id ", id, " is there twice");
  });
  require(!names.empty() && static_cast<int64_t>(names.size()) <= kMostClasses, ExitCode::kBadData, path, ": has ",
          names.size(), " categories; expected 1 to ", kMostClasses);
  std::unordered_map<int64_t, int64_t> labels;
  for (const auto& [id, name] : names) {
    labels.emplace(id, labels.size());
    out.class_names.push_back(name);
  }
  std::unordered_map<int64_t, size_t> places;
  visit_list(*file, "images", path, [&](const JsonObject& o, const std::string& where) {
    const int64_t id = json_int(o, "id", where);
    require(places.emplace(id, out.images.size()).second, ExitCode::kBadData, where, ": the id ", id,
            " is there twice");
    out.images.push_back(
        {json_text(o, "file_name", where), json_int(o, "height", where), json_int(o, "width", where), {}});
    require(out.images.back().height > 0 && out.images.back().width > 0, ExitCode::kBadData, where,
            ": height or width is not above 0");
  });
  visit_list(*file, "annotations", path, [&](const JsonObject& o, const std::string& where) {
    const auto image = places.find(json_int(o, "image_id", where));
    const auto label = labels.find(json_int(o, "category_id", where));
    require(image != places.end(), ExitCode::kBadData, where, ": there is no image with its image_id");
    require(label != labels.end(), ExitCode::kBadData, where, ": there is no category with its category_id");
    if (integer_of(o, "iscrowd") != 0) {
      ++out.crowds;
      return;
    }
    const std::vector<double> box = numbers_in(o, "bbox", where);
    CocoImage& to = out.images[image->second];
    const double width = static_cast<double>(to.width), height = static_cast<double>(to.height);
    add_box(label->second, box[0] / width, box[1] / height, (box[0] + box[2]) / width, (box[1] + box[3]) / height,
            to.boxes);
  });
  return out;
}

Boxes read_yolo_boxes(const std::string& path) {
  Boxes out;
  LineReader lines(path);
  for (std::string_view line; lines.next(line);) {
    std::vector<double> values;
    const char *at = line.data(), *end = at + line.size();
    while (true) {
      while (at < end && (*at == ' ' || *at == '\t')) ++at;
      if (at == end) break;
      double value = 0;
      const auto [after, error] = std::from_chars(at, end, value);
      require(error == std::errc() && std::abs(value) < 1e9 && values.size() < kBoxValues && !lines.too_long(),
              ExitCode::kBadData, lines.place(), ": a line has 5 numbers: class, x and y of the middle, width, height");
      values.push_back(value);
      at = after;
    }
    if (values.empty()) continue;
    require(values.size() == kBoxValues, ExitCode::kBadData, lines.place(), ": has ", values.size(),
            " numbers; expected class, x and y of the middle, width, height");
    require(values[0] >= 0 && values[0] < static_cast<double>(kMostClasses) && values[0] == std::floor(values[0]),
            ExitCode::kBadData, lines.place(), ": the class is ", values[0], "; expected a number from 0");
    add_box(static_cast<int64_t>(values[0]), values[1] - values[3] / 2, values[2] - values[4] / 2,
            values[1] + values[3] / 2, values[2] + values[4] / 2, out);
  }
  return out;
}

}  // namespace lockstep
