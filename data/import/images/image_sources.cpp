#include "data/import/images/image_sources.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <iterator>
#include <optional>
#include <set>

#include "core/base/error.h"
#include "core/base/log.h"
#include "data/import/images/box_files.h"
#include "data/import/tables/csv.h"
#include "data/import/tables/table_cells.h"
#include "data/samples/label_index.h"
#include "data/text/valid_text.h"

namespace lockstep {

namespace fs = std::filesystem;

bool is_image_name(const std::string& path) {
  std::string end = fs::path(path).extension();
  std::transform(end.begin(), end.end(), end.begin(), [](unsigned char c) { return std::tolower(c); });
  return end == ".png" || end == ".jpg" || end == ".jpeg";
}

namespace {

// Images by the subfolder that they lie in, which is their label if they need one.
class FolderScan {
 public:
  FolderScan(const std::string& folder, bool labelled) : folder_(folder), labelled_(labelled) {
    scan(folder, true);
    if (others_ > 0)
      log_warning(
          str(folder, ": ", others_, " files are neither .png nor .jpg by name and were left out, such as ", other_));
    if (!hidden_.empty())
      log_warning(str(folder, ": ", hidden_.size(),
                      " folders that programs keep for themselves were left out, such as ", *hidden_.begin()));
    if (labelled) refuse_splits();
    for (const ImageSource& s : found_) subfolders_.erase(s.label);
    if (labelled && !subfolders_.empty())
      log_warning(str(folder, ": ", subfolders_.size(), " subfolders without images are not made classes, such as ",
                      *subfolders_.begin(), "; --like TRAINING.h5 takes the classes of TRAINING.h5"));
  }
  std::vector<ImageSource> take() { return std::move(found_); }

 private:
  // `top`: links to folders are followed; within a subfolder none is, as it may lead back.
  void scan(const std::string& start, bool top) {
    std::error_code error;
    for (fs::recursive_directory_iterator it(start, error), end; !error && it != end; it.increment(error)) {
      const bool at_top = top && it.depth() == 0;
      if (it->is_directory(error)) {
        if (is_kept_by_a_program(it->path().filename())) {
          hidden_.insert(it->path().lexically_relative(folder_));
          it.disable_recursion_pending();
          continue;
        }
        if (at_top) subfolders_.insert(it->path().filename());
        if (!it->is_symlink(error)) continue;
        require(at_top, ExitCode::kBadData, it->path().string(),
                ": is a link to a folder, which is followed for the subfolders of ", folder_,
                " alone; put the files themselves, or links to them, in its place");
        scan(it->path(), false);
        continue;
      }
      take_file(it->path());
    }
    require(!error, ExitCode::kMissingInput, start, ": cannot be read: ", error.message());
  }

  // Of notebooks, archives of macOS, Synology's and Windows' shares, version control.
  static bool is_kept_by_a_program(const std::string& folder) {
    constexpr const char* kNames[] = {
        "__MACOSX", "@eaDir", "#recycle", "$RECYCLE.BIN", "System Volume Information", "lost+found", "__pycache__"};
    return folder.starts_with(".") || std::find(std::begin(kNames), std::end(kNames), folder) != std::end(kNames);
  }

  // Of a folder that is named as a part of the data, such as Train, val2017 or test_set: train, val, test; else empty.
  static std::string split_of(std::string name) {
    std::erase_if(name, [](unsigned char c) { return !std::isalpha(c); });
    std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::tolower(c); });
    for (const std::string_view end : {"set", "data", "images", "split"})
      if (name.size() > end.size() && name.ends_with(end)) name.resize(name.size() - end.size());
    constexpr const char* kNames[] = {"train", "training", "val",  "valid",  "validation",
                                      "dev",   "eval",     "test", "testing"};
    return std::find(std::begin(kNames), std::end(kNames), name) == std::end(kNames) ? "" : name;
  }

  // Two such subfolders, or nothing but one, are no classes; one beside others may be, as the train beside the bus.
  void refuse_splits() const {
    std::set<std::string> splits, classes;
    bool deep = false;
    for (const ImageSource& s : found_) {
      const bool split = !split_of(s.label).empty();
      (split ? splits : classes).insert(s.label);
      deep |= split && std::count(s.name.begin(), s.name.end(), '/') > 1;
    }
    if (splits.empty()) return;
    if (splits.size() == 1 && !classes.empty()) {
      if (deep)
        log_warning(str(folder_, ": its subfolder ", *splits.begin(),
                        " is imported as a class, though it has subfolders and is named like ",
                        "a split (train, test, ...); if it is a split, move it elsewhere and import it separately"));
      return;
    }
    // The part to train on comes first: the others are to be like it.
    auto first = std::find_if(splits.begin(), splits.end(),
                              [](const std::string& name) { return split_of(name).starts_with("train"); });
    if (first == splits.end()) first = splits.begin();
    std::string names, others;
    for (const std::string& name : splits) {
      names += str(names.empty() ? "" : ", ", name);
      if (name != *first) others += str(", then ", command(name), " --like ", *first, ".h5");
    }
    throw Error(ExitCode::kBadData, str(folder_, ": by their names its subfolders are parts of the data, not classes: ",
                                        names, "; import each by itself: ", command(*first), others,
                                        "; where they are classes, give their images' labels in a table (--labels)"));
  }
  std::string command(const std::string& split) const {
    return str("lockstep data import images ", (fs::path(folder_) / split).string(), " ", split, ".h5");
  }

  void take_file(const fs::path& path) {
    const std::string name = path.lexically_relative(folder_);
    // macOS keeps what it knows of x.png in ._x.png.
    if (!is_image_name(path) || path.filename().string().starts_with("._")) {
      if (others_++ == 0 || name < other_) other_ = name;
      return;
    }
    const size_t slash = name.find('/');
    require(slash != name.npos || !labelled_, ExitCode::kBadData, path.string(), ": is not in a subfolder of ", folder_,
            "; move it into one that is named after its label, or give --labels, --masks or --boxes");
    found_.emplace_back().name = name;
    if (labelled_) found_.back().label = name.substr(0, slash);
  }

  const std::string folder_;
  const bool labelled_;
  std::vector<ImageSource> found_;
  std::set<std::string> subfolders_, hidden_;
  std::string other_;
  int64_t others_ = 0;
};

std::vector<ImageSource> images_in_folder(const std::string& folder, bool labelled) {
  return FolderScan(folder, labelled).take();
}

// Images by a table with the columns `file` (within the folder), `label`, and perhaps one of weights.
std::vector<ImageSource> labelled_by_table(const std::string& table, const std::string& weights,
                                           TextEncoding encoding) {
  CsvReader rows(table, csv_separator(table), encoding);
  std::vector<std::string> cells;
  require(rows.next(cells), ExitCode::kBadData, table, ": is empty");
  const auto column = [&](const std::string& name) {
    const auto found = std::find(cells.begin(), cells.end(), name);
    require(found != cells.end(), ExitCode::kBadData, table, ":1: has no column '", name,
            "'; the first row names the columns, and 'file' and 'label' are needed",
            weights.empty() ? "" : str(", and '", weights, "' for --weight"));
    return static_cast<size_t>(found - cells.begin());
  };
  const size_t file = column("file"), label = column("label"), weight = weights.empty() ? label : column(weights);
  std::vector<ImageSource> out;
  while (rows.next(cells)) {
    const std::string& name = cells[file];
    const auto place = [&] { return str(table, ":", rows.line(), ": "); };
    require(!name.empty(), ExitCode::kBadData, place(), "the cell 'file' is empty");
    require(!label_text(cells[label]).empty(), ExitCode::kBadData, place(), "the cell 'label' is empty");
    const fs::path path(name);
    require(path.is_relative() && std::find(path.begin(), path.end(), "..") == path.end(), ExitCode::kBadData, place(),
            "file '", name, "' does not lie within the folder");
    out.emplace_back().name = path.lexically_normal();
    out.back().label = cells[label];
    if (weights.empty()) continue;
    const std::optional<double> number = number_in(cells[weight]);
    require(is_weight(number), ExitCode::kBadData, place(), "column '", weights, "' holds '", cells[weight], "', ",
            kNoWeight);
    out.back().weight = static_cast<float>(*number);
  }
  return out;
}

// Labels that are names of folders, whose bytes are any.
void decode_labels(std::vector<ImageSource>& images, const std::string& folder, TextEncoding encoding) {
  for (ImageSource& s : images) {
    const int64_t bad = first_invalid(s.label, encoding);
    require(bad < 0, ExitCode::kBadData, (fs::path(folder) / s.label).string(), ": byte ", bad,
            " of the folder's name, which is the label of its images, is ",
            encoding == TextEncoding::kUtf8
                ? "invalid UTF-8; name its encoding (--encoding latin-1 or windows-1252), or rename the folder"
                : "no character of windows-1252; give --encoding latin-1, or rename the folder");
    s.label = in_utf8(s.label, encoding);
  }
}

// An order that mixes the labels, so that any part of the data has all of them, and depends on the names alone.
void mix_order(std::vector<ImageSource>& images, const std::string& where) {
  std::vector<std::pair<uint64_t, size_t>> keys;
  for (size_t i = 0; i < images.size(); ++i) keys.emplace_back(hash64(images[i].name), i);
  std::sort(keys.begin(), keys.end(), [&](const auto& a, const auto& b) {
    return a.first != b.first ? a.first < b.first : images[a.second].name < images[b.second].name;
  });
  std::vector<ImageSource> out;
  for (const auto& [key, i] : keys) {
    require(out.empty() || out.back().name != images[i].name, ExitCode::kBadData, where, ": names ", images[i].name,
            " twice");
    out.push_back(std::move(images[i]));
  }
  images = std::move(out);
}

void warn_of_other_masks(const std::string& folder, const std::vector<ImageSource>& images) {
  std::set<std::string> names;
  for (const ImageSource& s : images) names.insert(mask_name(s.name));
  std::string other;
  int64_t others = 0;
  std::error_code error;
  for (fs::recursive_directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().lexically_relative(folder);
    if (it->is_directory(error) || names.contains(name)) continue;
    if (others++ == 0 || name < other) other = name;
  }
  if (others > 0) log_warning(str(folder, ": ", others, " files are masks of no image, such as ", other));
}

// Puts boxes into a source, and counts.
void take_boxes(Boxes&& boxes, ImageSource& to, Boxes& all) {
  all.cut += boxes.cut;
  all.outside += boxes.outside;
  to.boxes = std::move(boxes.rows);
}

std::vector<ImageSource> with_coco_boxes(const std::string& path, DatasetHeader& header, Boxes& counts) {
  CocoFile file = read_coco_boxes(path);
  if (file.crowds > 0) log_warning(str(path, ": ", file.crowds, " annotations of crowds were left out"));
  std::vector<ImageSource> out;
  for (CocoImage& image : file.images) {
    const fs::path name(image.name);
    require(name.is_relative() && std::find(name.begin(), name.end(), "..") == name.end() && !image.name.empty(),
            ExitCode::kBadData, path, ": file_name '", image.name, "' does not lie within the folder");
    out.emplace_back().name = name.lexically_normal();
    out.back().announced = {image.height, image.width};
    take_boxes(std::move(image.boxes), out.back(), counts);
  }
  header.class_names = std::move(file.class_names);
  header.classes = static_cast<int64_t>(header.class_names.size());
  return out;
}

std::vector<ImageSource> with_yolo_boxes(const std::string& images, const std::string& folder, int64_t classes,
                                         DatasetHeader& header, Boxes& counts) {
  require(fs::is_directory(folder), ExitCode::kMissingInput, folder,
          ": is neither a folder of text files nor a .json file");
  std::vector<ImageSource> out = images_in_folder(images, false);
  int64_t without = 0;
  header.classes = classes > 0 ? classes : 1;
  std::vector<bool> seen;
  for (ImageSource& s : out) {
    const std::string path = folder + "/" + fs::path(s.name).replace_extension(".txt").string();
    if (!fs::exists(path)) {
      ++without;
      continue;
    }
    take_boxes(read_yolo_boxes(path), s, counts);
    for (size_t at = 0; at < s.boxes.size(); at += kBoxValues) {
      const auto label = static_cast<int64_t>(s.boxes[at]);
      require(classes == 0 || label < classes, ExitCode::kBadData, path, ": has a box of class ", label,
              ", not in [0, ", classes, ")");
      header.classes = std::max(header.classes, label + 1);
      seen.resize(static_cast<size_t>(header.classes));
      seen[static_cast<size_t>(label)] = true;
    }
  }
  if (classes == 0)
    warn_of_empty_classes(folder, seen, str("--classes ", header.classes, " says that there are so many"));
  if (without > 0) log_warning(str(folder, ": ", without, " images have no file there, and so no boxes"));
  return out;
}

std::vector<ImageSource> with_boxes(const std::string& folder, const ImageOptions& how, DatasetHeader& header) {
  Boxes counts;
  header.target = TargetKind::kBoxes;
  std::vector<ImageSource> out = how.boxes.ends_with(".json")
                                     ? with_coco_boxes(how.boxes, header, counts)
                                     : with_yolo_boxes(folder, how.boxes, how.classes, header, counts);
  if (counts.cut + counts.outside > 0)
    log_warning(str(how.boxes, ": ", counts.cut, " boxes reach beyond their images and were cut, ", counts.outside,
                    " have no area there and were left out"));
  const bool some = std::any_of(out.begin(), out.end(), [](const ImageSource& s) { return !s.boxes.empty(); });
  require(some || out.empty(), ExitCode::kBadData, how.boxes, ": no image has a box");
  return out;
}

}  // namespace

std::string mask_name(const std::string& image) { return fs::path(image).replace_extension(".png"); }

std::vector<std::string> images_within(const std::string& folder) {
  require(fs::is_directory(folder), ExitCode::kMissingInput, folder, ": is no folder");
  std::vector<std::string> out;
  for (const ImageSource& s : images_in_folder(folder, false)) out.push_back((fs::path(folder) / s.name).string());
  require(!out.empty(), ExitCode::kBadData, folder, ": holds no PNG or JPEG image");
  std::sort(out.begin(), out.end());
  return out;
}

std::vector<ImageSource> image_sources(const std::string& folder, const ImageOptions& how, DatasetHeader& header) {
  if (!how.files.empty()) {
    std::vector<ImageSource> out(how.files.size());
    for (size_t i = 0; i < out.size(); ++i) out[i].name = how.files[i];
    header.classes = 1;
    return out;
  }
  const bool masks = !how.masks.empty(), boxes = !how.boxes.empty();
  require(!masks || fs::is_directory(how.masks), ExitCode::kMissingInput, how.masks, ": is no folder");
  std::vector<ImageSource> out = boxes                ? with_boxes(folder, how, header)
                                 : how.labels.empty() ? images_in_folder(folder, !masks)
                                                      : labelled_by_table(how.labels, how.weight, how.encoding);
  const std::string& where = boxes ? how.boxes : how.labels.empty() ? folder : how.labels;
  require(!out.empty(), ExitCode::kBadData, where, ": holds no PNG or JPEG image");
  if (masks) {
    warn_of_other_masks(how.masks, out);
  } else if (!boxes) {
    std::set<std::string> labels;
    if (how.labels.empty()) decode_labels(out, folder, how.encoding);
    for (ImageSource& s : out) labels.insert(s.label = label_text(s.label));
    const auto index = index_of_labels(labels, where, header.class_names);
    for (ImageSource& s : out) s.class_index = index.at(s.label);
    header.classes = static_cast<int64_t>(header.class_names.size());
  }
  mix_order(out, where);
  return out;
}

}  // namespace lockstep
