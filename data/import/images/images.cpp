#include <algorithm>
#include <array>
#include <atomic>
#include <filesystem>
#include <functional>
#include <iterator>
#include <optional>
#include <span>

#include "core/base/error.h"
#include "core/base/hash.h"
#include "core/base/log.h"
#include "core/base/plain_file.h"
#include "core/io/json.h"
#include "data/images/codecs/image_codec.h"
#include "data/import/images/box_files.h"
#include "data/import/images/image_sources.h"
#include "data/import/images/mask_values.h"
#include "data/import/import.h"
#include "data/import/import_threads.h"
#include "data/import/in_order.h"
#include "data/import/input_stream.h"
#include "data/import/shard_samples.h"
#include "data/samples/channel_sums.h"
#include "data/samples/dataset_file.h"
#include "data/store/partial_output.h"
#include "data/store/same_pass.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

// Calls body(i) for each i in [0, count) on several threads; rethrows the error of the smallest i.
void for_each_image(int threads, size_t count, const std::function<void(size_t)>& body) {
  size_t next = 0;
  in_order<size_t>(
      threads,
      [&](size_t& i) {
        i = next;
        return next < count ? static_cast<int64_t>(++next > 0) : 0;
      },
      [&](size_t& i, int) { body(i); }, [](size_t&) {});
}

class FolderImport {
 public:
  FolderImport(std::string folder, const ImageOptions& how, std::vector<ImageSource> images,
               const ImportOptions& options)
      : folder_(std::move(folder)), how_(how), images_(std::move(images)), options_(options) {
    if (!how_.palette.empty()) palette_ = read_mask_palette(how_.palette);
    black_and_white_ = has_masks() && !palette_ && (how_.classes == 0 || how_.classes == 2) && how_.ignored != 0 &&
                       how_.ignored != 255;
    std::vector<std::string> bad(images_.size());
    for_each_image(import_threads(options_), images_.size(), [&](size_t i) {
      bad[i] = images_[i].bad;
      if (bad[i].empty()) try {
          look_at(i);
        } catch (const Error& e) {
          if (how_.skip_bad == 0 || e.code() != ExitCode::kBadData) throw;
          bad[i] = e.what();
        }
    });
    leave_out(bad);
    black_and_white_ = black_and_white_ && has_white_;
    if (black_and_white_) log_info(str(how_.masks, ": masks of 0 and 255, which are the classes 0 and 1"));
    if (options_.without_targets) channels_ = std::ssize(options_.like->schema.mean);
    const ImageInfo& first = images_.front().info;
    for (const ImageSource& s : images_) {
      channels_ = std::max(channels_, s.info.channels);
      same_size_ = same_size_ && s.info.height == first.height && s.info.width == first.width;
      file_bytes_ += s.bytes;
      mask_bytes_ += s.mask_bytes;
    }
  }
  bool same_size() const { return same_size_; }
  const std::vector<std::string>& left_out() const { return left_out_; }

  // Before made_of() and write(). Masks whose values change are stored anew where images are files.
  void set_encoded(bool encoded) {
    if (!encoded || !changes_masks()) return;
    for_each_image(import_threads(options_), images_.size(), [&](size_t i) {
      images_[i].mask_bytes = static_cast<int64_t>(encode_png(mask_of(content(mask_path(i)), mask_path(i))).size());
    });
    mask_bytes_ = 0;
    for (const ImageSource& s : images_) mask_bytes_ += s.mask_bytes;
  }

  // Of all that the dataset is a function of.
  std::string made_of() const {
    Hasher128 files;
    const auto add = [&](const std::string& text) { files.update(text.data(), text.size()); };
    for (size_t i = 0; i < images_.size(); ++i) {
      const ImageSource& s = images_[i];
      add((s.archive ? str(s.name, " ", s.begin, " ", s.bytes, "\n") : described_input(path(i))) + s.label + "\n");
      if (has_masks()) add(described_input(mask_path(i)));
    }
    std::string out =
        str("images of ", folder_, ", encoded ", how_.keep_encoded, ", masks ", how_.masks, ", ignored ", how_.ignored,
            ", classes ", how_.classes, "\n", images_.size(), " files, ", files.digest(), "\n");
    if (!how_.weight.empty()) out += str("weights ", how_.weight, "\n");
    if (black_and_white_) out += "black and white\n";
    for (const std::string& table : {how_.labels, how_.boxes, how_.palette})
      if (!table.empty()) out += described_input(table);
    return out;
  }

  void write(PartialOutput& output, DatasetHeader& header) {
    const int64_t count = static_cast<int64_t>(images_.size());
    const ImageInfo& first = images_.front().info;
    header.kind = DataKind::kImages;
    header.images = header.encoded ? Shape{count, 0, 0, channels_} : Shape{count, first.height, first.width, channels_};
    Spool& spool = output.spool("images");
    Spool& masks = output.spool("masks");
    ChannelSums sums(channels_);
    WideValues wide;
    int largest = -1;
    size_t next = output.found() ? restore(output, header.encoded, sums, largest) : 0;
    const bool from_start = next == 0;
    SaveTimer saves(options_.save_every);
    in_order<Loaded>(
        import_threads(options_),
        [&](Loaded& l) {
          l.index = next;
          return next < images_.size() ? std::max<int64_t>(1, images_[next++].info.bytes()) : 0;
        },
        [&](Loaded& l, int) { load(l, header.encoded); },
        [&](Loaded& l) {
          header.encoded ? spool.append(l.file.data(), l.file.size()) : spool.append(l.pixels.data(), l.pixels.size());
          header.encoded ? masks.append(l.mask_file.data(), l.mask_file.size())
                         : masks.append(l.mask.data(), l.mask.size());
          sums.add(l.sums);
          wide.add(l.wide);
          largest = std::max(largest, l.largest);
          if (options_.progress) options_.progress(static_cast<int64_t>(l.index) + 1, count);
          if (saves.is_due()) output.save(state(l.index + 1, sums, largest)), saves.saved();
        });
    warn_of_wide_values(wide);
    if (saves.any()) output.save(state(images_.size(), sums, largest));
    Hdf5File file = Hdf5File::create(output.dataset());
    const auto copy = [&](const char* name, const Shape& shape, int64_t chunk_rows, Spool& from) {
      return copy_rows(file, name, StoredType::kUInt8, shape, chunk_rows, from, options_.writing);
    };
    header.hashes = copy("images", header.encoded ? Shape{file_bytes_} : header.images,
                         images_per_chunk(header.encoded ? 1 : first.height * first.width * channels_), spool);
    sums.moments(header.mean, header.stddev);
    if (header.encoded) header.files.hashes = write_ends(file, "ends", ends_of(&ImageSource::bytes));
    if (header.target == TargetKind::kBoxes) {
      write_all_boxes(file, header);
    } else if (!has_masks()) {
      std::vector<int32_t> labels;
      std::vector<float> weights;
      for (const ImageSource& s : images_) labels.push_back(s.class_index), weights.push_back(s.weight);
      if (options_.like) fit_to(header, labels, *options_.like, folder_);
      write_labels(file, labels, header);
      write_weights(file, weights, header);
    } else {
      require(largest >= 0, ExitCode::kBadData, how_.masks, ": all pixels of all masks are ", how_.ignored,
              ", which --ignore leaves out");
      header.target = TargetKind::kMasks;
      header.ignored = palette_ && palette_->ignores() ? kNoMaskClass : how_.ignored;
      header.classes = how_.classes > 0 ? how_.classes : black_and_white_ ? 2 : largest + 1;
      if (palette_) header.class_names = palette_->names, header.classes = std::ssize(palette_->names);
      else if (from_start && how_.classes == 0 && !black_and_white_) warn_of_unseen(header.classes);
      header.label_hashes = copy("masks", header.encoded ? Shape{mask_bytes_} : Shape{count, first.height, first.width},
                                 mask_rows_per_chunk(header), masks);
      if (header.encoded) header.target_parts.hashes = write_ends(file, "mask_ends", ends_of(&ImageSource::mask_bytes));
    }
    std::vector<int32_t> none;
    if (options_.like && header.target != TargetKind::kLabels) fit_to(header, none, *options_.like, folder_);
    write_dataset_header(file, header);
    file.close();
  }

 private:
  struct Loaded {
    size_t index = 0;
    std::string file;             // encoded
    std::vector<uint8_t> pixels;  // otherwise
    WideValues wide;
    ChannelSums sums{0};
    std::string mask_file;
    std::vector<uint8_t> mask;
    int largest = -1;  // class in the mask
  };

  // The first look at an image and its mask.
  void look_at(size_t i) {
    ImageSource& s = images_[i];
    const std::string bytes = image_file(i);
    s.bytes = static_cast<int64_t>(bytes.size());
    s.hash = hash64(bytes);
    s.info = image_info(bytes, path(i));
    const auto [height, width] = s.announced;
    require(height == 0 || (s.info.height == height && s.info.width == width), ExitCode::kBadData, path(i), ": has ",
            s.info.height, " x ", s.info.width, " pixels, but ", how_.boxes, " says ", height, " x ", width);
    if (how_.skip_bad > 0) decode_image(bytes, s.info.channels, path(i));
    if (!has_masks()) return;
    require(fs::exists(mask_path(i)), ExitCode::kBadData, mask_path(i), ": is not there; it would be the mask of ",
            s.name);
    s.mask_bytes = InputFile(mask_path(i)).size;
    if (how_.skip_bad == 0 && !black_and_white_) return;
    const std::string file = content(mask_path(i));
    const ByteImage mask =
        palette_ ? classes_by_palette(file, *palette_, mask_path(i)) : decode_mask(file, mask_path(i));
    if (!black_and_white_) return;
    if (!is_black_and_white(mask)) black_and_white_ = false;
    else if (std::find(mask.bytes.begin(), mask.bytes.end(), 255) != mask.bytes.end()) has_white_ = true;
  }

  // `bad`: of each image what is wrong with it, or empty.
  void leave_out(const std::vector<std::string>& bad) {
    int64_t count = 0;
    std::vector<ImageSource> good;
    for (size_t i = 0; i < images_.size(); ++i) {
      if (bad[i].empty()) {
        good.push_back(std::move(images_[i]));
        continue;
      }
      if (++count > how_.skip_bad)
        throw Error(ExitCode::kBadData, str(bad[i], "; ", how_.skip_bad, " bad images before it were left out"));
      log_warning(str(bad[i], "; left out"));
      left_out_.push_back(path(i));
    }
    images_ = std::move(good);
    require(!images_.empty(), ExitCode::kBadData, folder_, ": all ", count, " images were left out");
  }

  bool changes_masks() const { return has_masks() && (palette_ || black_and_white_); }

  // A mask's classes.
  ByteImage mask_of(const std::string& file, const std::string& path) const {
    if (palette_) return classes_by_palette(file, *palette_, path);
    ByteImage mask = decode_mask(file, path);
    if (black_and_white_)
      for (uint8_t& value : mask.bytes) value = value == 255 ? 1 : value;
    return mask;
  }

  void write_all_boxes(Hdf5File& file, DatasetHeader& header) const {
    std::vector<float> boxes;
    std::vector<int64_t> ends;
    for (const ImageSource& s : images_) {
      boxes.insert(boxes.end(), s.boxes.begin(), s.boxes.end());
      ends.push_back(static_cast<int64_t>(boxes.size()) / kBoxValues);
    }
    write_boxes(file, boxes, ends, header);
  }

  bool has_masks() const { return !how_.masks.empty(); }
  // Of the image; of one in an archive the names of both, for messages.
  std::string path(size_t i) const {
    return how_.files.empty() && !images_[i].archive ? folder_ + "/" + images_[i].name : images_[i].name;
  }
  std::string mask_path(size_t i) const { return how_.masks + "/" + mask_name(images_[i].name); }
  static std::string content(const std::string& path) { return InputFile(path).text(kMostImageBytes); }
  std::string image_file(size_t i) const {
    const ImageSource& s = images_[i];
    if (!s.archive) return content(path(i));
    require(s.bytes <= kMostImageBytes, ExitCode::kBadData, s.name, ": has ", s.bytes, " bytes, more than ",
            kMostImageBytes);
    std::string out(static_cast<size_t>(s.bytes), '\0');
    InputFile(*s.archive).read(s.begin, out.data(), s.bytes);
    return out;
  }

  std::vector<int64_t> ends_of(int64_t ImageSource::*bytes) const {
    std::vector<int64_t> out;
    for (const ImageSource& s : images_) out.push_back((out.empty() ? 0 : out.back()) + s.*bytes);
    return out;
  }

  // How far an import is, for its journal; restore() returns how many images are done.
  static JsonObject state(size_t done, const ChannelSums& sums, int largest) {
    std::vector<JsonValue> list;
    for (const auto* values : {&sums.sum, &sums.square})
      for (uint64_t value : *values) list.emplace_back(static_cast<int64_t>(value));
    return {{"images", static_cast<int64_t>(done)},
            {"pixels", sums.pixels},
            {"sums", json_array(list)},
            {"largest", int64_t{largest}}};
  }
  size_t restore(PartialOutput& output, bool encoded, ChannelSums& sums, int& largest) const {
    const JsonObject& state = *output.found();
    const auto done = static_cast<size_t>(output.found_integer(state, "images", 0, std::ssize(images_)));
    int64_t bytes = 0, mask_bytes = 0, pixels = 0;
    for (const ImageSource& s : std::span(images_).first(done)) {
      const int64_t area = s.info.height * s.info.width;
      pixels += area;
      bytes += encoded ? s.bytes : area * channels_;
      mask_bytes += !has_masks() ? 0 : encoded ? s.mask_bytes : area;
    }
    if (output.spool("images").size() != bytes || output.spool("masks").size() != mask_bytes)
      output.refuse_found("does not fit what was written");
    sums.pixels = output.found_integer(state, "pixels", pixels, pixels);
    largest = static_cast<int>(output.found_integer(state, "largest", -1, kMostMaskClasses));
    const auto list = parse_json_array(text_of(state, "sums"));
    const size_t channels = sums.sum.size();
    if (!list || list->size() != 2 * channels) output.refuse_found("has no sums of the pixels");
    for (size_t i = 0; i < list->size(); ++i) {
      const JsonObject one{{"sums", (*list)[i]}};
      (i < channels ? sums.sum[i] : sums.square[i - channels]) =
          static_cast<uint64_t>(output.found_integer(one, "sums", 0, pixels * 255 * (i < channels ? 1 : 255)));
    }
    return done;
  }

  void load(Loaded& out, bool encoded) const {
    const size_t i = out.index;
    out.file = image_file(i);
    require_same_pass(hash64(out.file) == images_[i].hash, path(i));
    ByteImage image = decode_image(out.file, channels_, path(i), &out.wide);
    out.sums = ChannelSums(channels_);
    out.sums.add(image.bytes.data(), image.height * image.width);
    if (!encoded) out.file.clear(), out.pixels = std::move(image.bytes);
    if (has_masks()) load_mask(i, out);
  }

  // Depth maps, thermal images and CT fill few of the 16 bits.
  void warn_of_wide_values(const WideValues& wide) const {
    const int64_t levels = (wide.largest >> 8) + 1;
    if (wide.largest == 0 || (levels > 128 && wide.lost <= wide.above_zero / 2)) return;
    log_warning(str(folder_, ": ", wide.images,
                    " images have 16 bits, of which the higher 8 are stored: of values up to ", wide.largest,
                    " that leaves ", levels, " of 256 levels, and ", wide.lost, " of ", wide.above_zero,
                    " values above 0 become 0; scale them to 8 bits first, such as value * 255 / ", wide.largest));
  }

  // Masks of 0 and 128 have 129 classes by the rule, of which nobody thought.
  void warn_of_unseen(int64_t classes) const {
    constexpr int64_t kNamed = 8;
    std::string values;
    int64_t seen = 0;
    for (int64_t c = 0; c < classes; ++c)
      if (seen_[static_cast<size_t>(c)] && ++seen <= kNamed) values += str(seen > 1 ? ", " : "", c);
    if (seen == classes) return;
    log_warning(str(how_.masks, ": ", classes - seen, " of the ", classes, " classes, from 0 to the largest value, ",
                    "never occur: the masks' values are ", values, seen > kNamed ? ", ..." : "",
                    "; --palette makes classes of them, by lines such as '128 128 128 roof', and --classes ", classes,
                    " says that there are so many"));
  }

  void load_mask(size_t i, Loaded& out) const {
    const std::string path = mask_path(i);
    out.mask_file = content(path);
    ByteImage mask = mask_of(out.mask_file, path);
    if (changes_masks() && !out.file.empty()) out.mask_file = encode_png(mask);
    if (!changes_masks() || !out.file.empty())
      require_same_pass(static_cast<int64_t>(out.mask_file.size()) == images_[i].mask_bytes, path);
    const ImageInfo& info = images_[i].info;
    require(mask.height == info.height && mask.width == info.width, ExitCode::kBadData, path, ": has ", mask.height,
            " x ", mask.width, " pixels, but ", images_[i].name, " has ", info.height, " x ", info.width);
    const int64_t ignored = palette_ && palette_->ignores() ? kNoMaskClass : how_.ignored;
    const int limit = static_cast<int>(how_.classes > 0 ? how_.classes : kMostMaskClasses);
    for (size_t at = 0; at < mask.bytes.size(); ++at) {
      const int value = mask.bytes[at];
      if (value == ignored) continue;
      const auto width = static_cast<size_t>(mask.width);
      require(value < limit, ExitCode::kBadData, path, ": is ", value, " at row ", at / width, ", column ", at % width,
              ", not a class in [0, ", limit, "); --ignore ", value, " leaves such pixels out of loss and metric");
      out.largest = std::max(out.largest, value);
      if (!seen_[static_cast<size_t>(value)].load(std::memory_order_relaxed)) seen_[static_cast<size_t>(value)] = true;
    }
    out.mask = std::move(mask.bytes);
  }

  std::string folder_;
  const ImageOptions& how_;
  std::vector<ImageSource> images_;
  std::vector<std::string> left_out_;
  const ImportOptions& options_;
  int64_t channels_ = 1, file_bytes_ = 0, mask_bytes_ = 0;
  bool same_size_ = true;
  std::optional<MaskPalette> palette_;
  mutable std::array<std::atomic<bool>, 256> seen_ = {};  // values of masks that are not ignored
  std::atomic<bool> black_and_white_ = false,
                    has_white_ = false;  // all masks have the values 0 and 255 alone, and both
};

// `made_of`: lines for PartialOutput, beside those of the images; nothing where an import is to begin anew.
void write_images(FolderImport& import, DatasetHeader& header, bool keep_encoded, const std::string& output, bool force,
                  const std::optional<std::string>& made_of) {
  header.encoded = keep_encoded || !import.same_size();
  import.set_encoded(header.encoded);
  PartialOutput pending(output, force, made_of ? *made_of + import.made_of() : "");
  import.write(pending, header);
  pending.commit();
}

}  // namespace

std::vector<std::string> import_images(const std::string& folder, const std::string& output, const ImageOptions& images,
                                       const ImportOptions& options) {
  require(!images.files.empty() || fs::is_directory(folder), ExitCode::kMissingInput, folder, ": is no folder");
  PendingFile::check_place(output, options.force);
  DatasetHeader header;
  FolderImport import(folder, images, image_sources(folder, images, header), options);
  write_images(import, header, images.keep_encoded, output, options.force, "");
  return import.left_out();
}

void import_shards(const std::vector<std::string>& shards, const std::string& output, const ShardOptions& how,
                   const ImportOptions& options) {
  PendingFile::check_place(output, options.force);
  const std::string where = name_of_shards(shards);
  std::optional<std::string> made_of = "shards\n";
  for (const std::string& path : shards) {
    if (path == "-") made_of.reset();
    else if (made_of) *made_of += described_input(path);
  }
  const Shards archives(shards, output);
  DatasetHeader header;
  const ImageOptions images{.keep_encoded = how.keep_encoded, .skip_bad = how.skip_bad};
  FolderImport import(where, images, shard_images(archives, where, how, header), options);
  write_images(import, header, how.keep_encoded, output, options.force, made_of);
}

}  // namespace lockstep
