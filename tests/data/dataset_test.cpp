// Datasets: what a sample is, at every epoch and at the ends of the text, and what damage to a file is called.
#include "data/samples/dataset.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <set>
#include <thread>

#include "core/io/hdf5/hdf5_file.h"
#include "data/import/import.h"
#include "data/samples/data_options.h"
#include "data/samples/dataset_file.h"
#include "data/samples/inspect.h"
#include "data/samples/sample_buffer.h"
#include "data/samples/sampler.h"
#include "data/samples/text/token_dataset.h"
#include "data/streams/open_dataset.h"
#include "data/streams/synthetic.h"
#include "tests/data/make_files.h"

namespace lockstep::dataset_test {
namespace {

using namespace test;

// Token i is i.
class Counted final : public TokenSource {
 public:
  explicit Counted(int64_t size) : size_(size) {}
  int64_t size() const override { return size_; }
  int64_t vocabulary_size() const override { return size_; }
  const Vocabulary* vocabulary() const override { return nullptr; }
  Hash128 identity() const override { return {}; }
  void read(IndexRange tokens, int32_t* out) const override {
    ASSERT_TRUE(tokens.begin >= 0 && tokens.end <= size_) << tokens.begin << ", " << tokens.end;
    std::iota(out, out + tokens.size(), static_cast<int32_t>(tokens.begin));
  }

 private:
  int64_t size_;
};

struct Sample {
  std::vector<int32_t> input, target;
};

Sample sample_of(const Dataset& data, int64_t epoch, int64_t index) {
  Sample s;
  s.input.resize(static_cast<size_t>(data.spec().input().shape.numel()), -1);
  s.target.resize(static_cast<size_t>(data.spec().targets()), -1);
  void* const memory[] = {s.input.data(), s.target.data()};
  data.read(epoch, index, {data.spec().tensors, memory});
  return s;
}

TEST(TokenDataset, TrainingWindowsFollowEachOtherFromAMovingOrigin) {
  for (int64_t tokens : {6, 9, 10, 11, 50, 53, 54, 100})
    for (int64_t context : {1, 4, 5}) {
      auto source = std::make_shared<Counted>(tokens + 7);
      TokenDataset data(source, {3, 3 + tokens}, {context, {}, true, 5});
      std::set<int64_t> origins;
      for (int64_t epoch = 0; epoch < 40; ++epoch) {
        int64_t origin = data.origin(epoch);
        origins.insert(origin);
        for (int64_t i = 0; i < data.size(); ++i) {
          Sample s = sample_of(data, epoch, i);
          for (int64_t j = 0; j < context; ++j) {
            ASSERT_EQ(s.input[static_cast<size_t>(j)], 3 + origin + i * context + j);
            ASSERT_EQ(s.target[static_cast<size_t>(j)], 3 + origin + i * context + j + 1);
          }
          ASSERT_LT(s.target.back(), 3 + tokens) << "beyond the part";
        }
      }
      if (tokens >= 2 * context) {
        EXPECT_EQ(data.size(), tokens / context - 1);
        EXPECT_EQ(static_cast<int64_t>(origins.size()), context) << "every origin comes up";
      }
    }
}

TEST(TokenDataset, OriginDependsOnSeedAndEpochOnly) {
  auto source = std::make_shared<Counted>(10000);
  auto origins = [&](uint64_t seed) {
    TokenDataset data(source, {0, 9000}, {64, {}, true, seed});
    std::vector<int64_t> out;
    for (int64_t e = 0; e < 20; ++e) out.push_back(data.origin(e));
    return out;
  };
  EXPECT_EQ(origins(1), origins(1));
  EXPECT_NE(origins(1), origins(2));
}

TEST(TokenDataset, ValidationPredictsEveryTokenOnce) {
  for (int64_t tokens : {2, 5, 6, 7, 41})
    for (int64_t context : {1, 5, 64}) {
      auto source = std::make_shared<Counted>(10 + tokens);
      TokenDataset data(source, {10, 10 + tokens}, {context, {}, false, 0});
      std::vector<int64_t> targets;
      for (int64_t i = 0; i < data.size(); ++i) {
        Sample s = sample_of(data, i, i), again = sample_of(data, 0, i);
        EXPECT_EQ(s.input, again.input) << "validation does not know the epoch";
        for (size_t j = 0; j < s.target.size(); ++j) {
          if (s.target[j] == kIgnoreIndex) {
            EXPECT_EQ(s.input[j], 0);
            continue;
          }
          EXPECT_EQ(s.target[j], s.input[j] + 1);
          targets.push_back(s.target[j]);
        }
      }
      std::vector<int64_t> expected(static_cast<size_t>(tokens - 1));
      std::iota(expected.begin(), expected.end(), 11);
      EXPECT_EQ(targets, expected);
    }
}

TEST(TokenDataset, IgnoredTokensAreNoTargets) {
  auto source = std::make_shared<Counted>(100);
  TokenDataset data(source, {0, 100}, {10, {7, 3, 99}, false, 0});
  for (int64_t i = 0; i < data.size(); ++i) {
    Sample s = sample_of(data, 0, i);
    for (size_t j = 0; j < 10; ++j) {
      int32_t next = s.input[j] + 1;
      bool ignored = next == 3 || next == 7 || next == 99 || i * 10 + static_cast<int64_t>(j) >= 99;
      EXPECT_EQ(s.target[j], ignored ? kIgnoreIndex : next);
    }
  }
}

class DatasetFileTest : public ::testing::Test {
 protected:
  std::string text_file(const std::string& text, TextLevel level = TextLevel::kByte) {
    write_file(folder_ / "in.txt", text);
    import_text({folder_ / "in.txt"}, path_, level, {.force = true});
    return path_;
  }
  // A file of our layout with these ids and a header that says `vocabulary`.
  void ids_file(const std::vector<uint16_t>& ids, int64_t vocabulary) {
    Hdf5File file = Hdf5File::create(path_);
    DatasetHeader h;
    h.tokens = static_cast<int64_t>(ids.size());
    h.vocabulary_size = vocabulary;
    ChunkWriter writer(file, "tokens", StoredType::kUInt16, {h.tokens}, 100);
    writer.append(ids.data(), h.tokens);
    h.hashes = writer.finish();
    write_dataset_header(file, h);
    file.close();
  }
  Datasets open(DataOptions o = {}) {
    o.path = path_;
    if (o.context == 0) o.context = 8;
    return open_datasets(o, 1);
  }
  void refused(ExitCode code, std::initializer_list<std::string> parts) {
    expect_error(code, parts, [&] { open(); });
    expect_error(code, parts, [&] { inspect_dataset(path_); });
  }
  TemporaryFolder folder_;
  std::string path_ = folder_ / "data.h5";
};

TEST_F(DatasetFileTest, ReadingByChunkGivesWhatMemoryGives) {
  std::string text = noise(5 << 20, 3);
  text_file(text);
  auto in_memory = open(), by_chunk = open({.memory = 1});
  // Several threads, so that chunks come and go under each other.
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      Sampler order(in_memory.train->size(), 1, t, true);
      for (int64_t i = 0; i < 500; ++i) {
        Sample a = sample_of(*in_memory.train, t, order(i)), b = sample_of(*by_chunk.train, t, order(i));
        ASSERT_EQ(a.input, b.input);
        ASSERT_EQ(a.target, b.target);
      }
    });
  for (auto& t : threads) t.join();
  for (int64_t i : {int64_t{0}, by_chunk.validation->size() - 1})
    EXPECT_EQ(sample_of(*by_chunk.validation, 0, i).target, sample_of(*in_memory.validation, 0, i).target);
}

TEST_F(DatasetFileTest, ValidationIsTheLastPart) {
  std::string text;
  for (int i = 0; i < 1000; ++i) text.push_back(static_cast<char>(i < 900 ? 'a' : 'b'));
  text_file(text, TextLevel::kChar);
  auto data = open();
  ASSERT_TRUE(data.validation);
  EXPECT_EQ(data.train->size(), 900 / 8 - 1);
  EXPECT_EQ(data.validation->size(), (99 + 7) / 8);
  for (int64_t i = 0; i < data.train->size(); ++i)
    for (int32_t id : sample_of(*data.train, 3, i).target) EXPECT_EQ(id, 0);
  for (int64_t i = 0; i < data.validation->size(); ++i)
    for (int32_t id : sample_of(*data.validation, 3, i).target) EXPECT_TRUE(id == 1 || id == kIgnoreIndex);
  EXPECT_EQ(data.train->vocabulary()->decode({0, 1}), "ab");
  EXPECT_EQ(data.train->vocabulary()->encode("ba"), (std::vector<int32_t>{1, 0}));
  expect_error(ExitCode::kBadData, {"'é'", "not in the dataset's vocabulary"},
               [&] { data.train->vocabulary()->encode("abé"); });
  EXPECT_FALSE(open({.validation = 0}).validation);
}

TEST_F(DatasetFileTest, AFlippedByteAnywhereInTheDataIsNoticed) {
  std::string text = noise(200000, 4);
  text_file(text);
  std::string good = content(path_);
  for (size_t at : {size_t{0}, size_t{65535}, size_t{65536}, size_t{199999}}) {
    write_file(path_, good);
    flip_byte_of(path_, text.data() + at / 65536 * 65536, std::min<size_t>(65536, 200000 - at / 65536 * 65536),
                 at % 65536);
    int64_t first = static_cast<int64_t>(at / 65536 * 65536);
    refused(ExitCode::kBadData, {path_, str("dataset 'tokens', rows [", first), "checksum differs"});
  }
  write_file(path_, good);
  open();
}

// Fletcher32 takes 0xFFFF for 0x0000; the chunk's hash does not.
TEST_F(DatasetFileTest, DamageThatTheChecksumMissesFailsTheHash) {
  std::string text = noise(1000, 7);
  text[10] = text[11] = '\0';
  text_file(text);
  std::string all = content(path_);
  size_t at = all.find(text);
  ASSERT_NE(at, all.npos);
  all[at + 10] = all[at + 11] = '\xff';
  write_file(path_, all);
  refused(ExitCode::kBadData, {path_, "'tokens', rows [0, 1000)", "hash differs"});
}

TEST_F(DatasetFileTest, AFlipAnywhereInTheFileNeverGivesWrongSamples) {
  std::string text = noise(3000, 5);
  text_file(text, TextLevel::kByte);
  std::string good = content(path_);
  auto first = open();
  Sample expected = sample_of(*first.train, 0, 0);
  int64_t noticed = 0, tried = 0;
  for (size_t at = 0; at < good.size(); at += 61, ++tried) {
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] ^ (1 << at % 8));
    write_file(path_, bad);
    try {
      auto data = open();
      ASSERT_EQ(data.train->identity(), first.train->identity()) << at;
      ASSERT_EQ(sample_of(*data.train, 0, 0).input, expected.input) << at;
    } catch (const Error& e) {
      ++noticed;
      EXPECT_EQ(static_cast<int>(e.code()), static_cast<int>(ExitCode::kBadData)) << e.what();
    }
  }
  EXPECT_EQ(noticed, tried) << "the seal covers all but the chunks, and those have checksums";
}

TEST_F(DatasetFileTest, WrongFilesAreNamed) {
  refused(ExitCode::kMissingInput, {path_, "No such file"});
  write_file(path_, "this is text");
  refused(ExitCode::kBadData, {path_, "not an HDF5 file"});
  {
    Hdf5File file = Hdf5File::create(path_);
    file.set_attribute("", "something", int64_t{1});
    file.close();
  }
  refused(ExitCode::kBadData, {path_, "not a lockstep dataset"});
  text_file(noise(300000, 6));
  std::filesystem::resize_file(path_, 200000);
  refused(ExitCode::kBadData, {path_, "truncated"});
  ids_file({1, 2, 3, 65, 4, 66}, 65);
  refused(ExitCode::kBadData, {path_, "token 3 is 65, beyond the vocabulary of 65"});
}

TEST_F(DatasetFileTest, ATokenBeyondTheVocabularyIsFoundByChunkToo) {
  std::vector<uint16_t> ids(1 << 20, 5);
  ids[(1 << 20) - 1] = 9;
  ids_file(ids, 9);
  auto data = open({.memory = 1});
  sample_of(*data.train, 0, 0);
  expect_error(ExitCode::kBadData, {path_, str("token ", (1 << 20) - 1, " is 9, beyond")},
               [&] { sample_of(*data.validation, 0, data.validation->size() - 1); });
}

TEST_F(DatasetFileTest, OptionsThatDoNotFitTheDataAreNamed) {
  text_file(std::string(100, 'x'), TextLevel::kChar);
  expect_error(ExitCode::kConfig, {"data.context is 95", "training part", "only 90 tokens"},
               [&] { open({.context = 95}); });
  expect_error(ExitCode::kConfig, {"validation part", "only 1 tokens"},
               [&] { open({.context = 8, .validation = 0.01}); });
  expect_error(ExitCode::kConfig, {"data.ignore_tokens has 1", "vocabulary has 1"},
               [&] { open({.context = 8, .ignore_tokens = {1}}); });
  expect_error(ExitCode::kConfig, {"data.context is not set"}, [&] { open_datasets({.path = path_}, 0); });
  expect_error(ExitCode::kConfig, {"data.path is not set"}, [&] { open_datasets({}, 0); });
  expect_error(ExitCode::kConfig, {"data.context is 8", "no text"},
               [&] { open_datasets({.name = "synthetic_images", .context = 8}, 0); });
}

TEST_F(DatasetFileTest, ImagesThatBecomeNoNumbersAreRefused) {
  const double kNan = std::nan(""), kInfinity = std::numeric_limits<double>::infinity();
  for (const auto& [mean, stddev] :
       {std::pair{kNan, 1.0}, std::pair{kInfinity, 1.0}, std::pair{0.5, kNan}, std::pair{0.5, kInfinity},
        std::pair{0.5, 0.0}, std::pair{0.5, -1.0}, std::pair{0.5, 1e-300}, std::pair{1e300, 1.0}}) {
    Hdf5File file = Hdf5File::create(path_);
    DatasetHeader h;
    h.kind = DataKind::kImages;
    h.images = {10, 2, 2, 1};
    h.classes = 3;
    h.mean = {mean}, h.stddev = {stddev};
    const std::vector<uint8_t> zeros(40);
    ChunkWriter images(file, "images", StoredType::kUInt8, h.images, 10);
    images.append(zeros.data(), 10);
    h.hashes = images.finish();
    ChunkWriter labels(file, "labels", StoredType::kInt32, {10}, 10);
    labels.append(zeros.data(), 10);
    h.label_hashes = labels.finish();
    write_dataset_header(file, h);
    file.close();
    SCOPED_TRACE(str(mean, " ", stddev));
    expect_error(ExitCode::kBadData, {path_, "channel 0", str("mean ", mean), str("std ", stddev)},
                 [&] { open_datasets({.path = path_}, 0); });
  }
}

// Images of another shape, kind or count than the header says.
TEST_F(DatasetFileTest, WrongImageFilesAreNamed) {
  write_file(folder_ / "i", idx({10, 4, 4}, noise(160, 2)));
  write_file(folder_ / "l", idx({10}, cycling_labels(10, 5)));
  auto refuse = [&](const std::function<void(Hdf5File&)>& fill, std::initializer_list<std::string> parts) {
    Hdf5File file = Hdf5File::create(path_);
    file.set_attribute("", "format", std::string("lockstep-data"));
    file.set_attribute("", "version", int64_t{1});
    file.set_attribute("", "kind", std::string("images"));
    std::vector<uint8_t> bytes(1000, 1);
    std::vector<uint64_t> hash(1);
    file.write_all("images_hash", StoredType::kUInt64, {1}, hash.data());
    file.write_all("labels_hash", StoredType::kUInt64, {1}, hash.data());
    fill(file);
    file.close();
    expect_error(ExitCode::kBadData, parts, [&] { open_datasets({.path = path_}, 0); });
  };
  std::vector<int32_t> zeros(100);
  refuse(
      [&](Hdf5File& f) {
        f.write_all("images", StoredType::kUInt8, {10, 4, 4}, zeros.data());
      },
      {"uint8 of shape [10, 4, 4]", "uint8 [count, height, width, channels]"});
  refuse(
      [&](Hdf5File& f) {
        f.write_all("images", StoredType::kInt32, {5, 2, 2, 1}, zeros.data());
      },
      {"int32 of shape [5, 2, 2, 1]"});
  refuse(
      [&](Hdf5File& f) {
        f.write_all("images", StoredType::kUInt8, {5, 2, 2, 1}, zeros.data());
        f.write_all("labels", StoredType::kInt32, {4}, zeros.data());
      },
      {"5 images, but 4 labels"});
  refuse(
      [&](Hdf5File& f) {
        f.write_all("images", StoredType::kUInt8, {5, 2, 2, 1}, zeros.data());
        f.write_all("labels", StoredType::kInt32, {5}, zeros.data());
        f.set_attribute("", "classes", int64_t{2});
        f.set_attribute("images", "mean", std::vector<double>{0, 0});
        f.set_attribute("images", "std", std::vector<double>{1, 1});
      },
      {"have 2 and 2 values; expected one per channel (1)"});
  // And a right file, one label of which is out of range, the header and hashes being right.
  import_idx(folder_ / "i", folder_ / "l", path_, 0, {.force = true});
  auto data = open_datasets({.path = path_, .validation = 0.2}, 0);
  EXPECT_EQ(data.train->size(), 8);
  EXPECT_EQ(data.validation->size(), 2);
  float image[16];
  int32_t label = -1;
  data.validation->read(0, 1, {data.validation->spec().tensors, std::array<void*, 2>{image, &label}});
  EXPECT_EQ(label, 4);
  expect_error(ExitCode::kConfig, {"data.context"}, [&] { open({.context = 8}); });
  {
    Hdf5File file = Hdf5File::create(path_);
    DatasetHeader h;
    h.kind = DataKind::kImages;
    h.images = {100, 1, 1, 1};
    h.classes = 3;
    h.mean = {0}, h.stddev = {1};
    ChunkWriter images(file, "images", StoredType::kUInt8, h.images, 10);
    images.append(zeros.data(), 100);
    h.hashes = images.finish();
    zeros[77] = 3;
    ChunkWriter labels(file, "labels", StoredType::kInt32, {100}, 10);
    labels.append(zeros.data(), 100);
    h.label_hashes = labels.finish();
    write_dataset_header(file, h);
    file.close();
  }
  expect_error(ExitCode::kBadData, {path_, "label of image 77 is 3, not in [0, 3)"},
               [&] { open_datasets({.path = path_}, 0); });
}

TEST(TokenDataset, HiddenTokensAreTheTargets) {
  auto source = std::make_shared<Counted>(4096);
  const TokenDataset data(source, {0, 4096}, {.context = 64, .seed = 5, .mask = 0.25});
  EXPECT_EQ(data.spec().classes, 4097);
  int64_t targets = 0, masked = 0, kept = 0, other_epoch = 0;
  for (int64_t i = 0; i + 1 < data.size(); ++i) {
    const Sample s = sample_of(data, 0, i), again = sample_of(data, 0, i), later = sample_of(data, 1, i);
    EXPECT_EQ(s.input, again.input);
    EXPECT_EQ(s.target, again.target);
    other_epoch += s.target != later.target;
    for (int64_t t = 0; t < 64; ++t) {
      const auto at = static_cast<size_t>(t);
      const int32_t token = static_cast<int32_t>(i * 64 + t);
      if (s.target[at] == kIgnoreIndex) {
        EXPECT_EQ(s.input[at], token);
        continue;
      }
      ++targets;
      EXPECT_EQ(s.target[at], token);
      masked += s.input[at] == 4096;
      kept += s.input[at] == token;
    }
  }
  const double all = static_cast<double>((data.size() - 1) * 64), hidden = static_cast<double>(targets);
  EXPECT_NEAR(hidden / all, 0.25, 0.03);
  EXPECT_NEAR(static_cast<double>(masked) / hidden, 0.8, 0.05);
  EXPECT_NEAR(static_cast<double>(kept) / hidden, 0.1, 0.04);
  EXPECT_EQ(other_epoch, data.size() - 1);
}

// No brightness tells the shapes from the ground.
TEST(Synthetic, ShapesAreNotFoundByAThreshold) {
  const DataOptions::Synthetic options{.images = 40, .height = 64, .width = 64};
  const SyntheticShapes data(options, {0, 40});
  std::vector<float> image(64 * 64);
  std::vector<int32_t> label(64 * 64);
  std::vector<std::pair<float, int32_t>> pixels;
  for (int64_t i = 0; i < data.size(); ++i) {
    void* const memory[] = {image.data(), label.data()};
    data.read(0, i, {data.spec().tensors, memory});
    for (size_t p = 0; p < image.size(); ++p) {
      EXPECT_TRUE(label[p] == 0 || label[p] == 1);
      pixels.emplace_back(image[p], label[p]);
    }
  }
  int64_t shapes = 0;
  for (auto& [_, l] : pixels) shapes += l;
  double best = 0;
  for (int sign : {1, -1}) {
    std::sort(pixels.begin(), pixels.end(), [&](auto& a, auto& b) { return sign * a.first > sign * b.first; });
    int64_t found = 0, taken = 0;
    for (auto& [_, l] : pixels) {
      found += l, ++taken;
      best = std::max(best, static_cast<double>(found) / static_cast<double>(taken + shapes - found));
    }
  }
  EXPECT_GT(best, 0.2);
  EXPECT_LT(best, 0.6);
}

TEST(Synthetic, IsAFunctionOfItsIndexAndInRange) {
  DataOptions o{.name = "synthetic_tokens", .context = 20};
  o.synthetic.tokens = 3000, o.synthetic.vocabulary = 11;
  auto text = open_datasets(o, 1);
  EXPECT_EQ(text.train->spec().classes, 11);
  for (int64_t i = 0; i < text.train->size(); ++i) {
    Sample s = sample_of(*text.train, 0, i);
    EXPECT_EQ(s.target, sample_of(*text.train, 0, i).target);
    for (size_t j = 0; j + 1 < 20; ++j) EXPECT_EQ(s.target[j], s.input[j + 1]);
    for (int32_t id : s.target) EXPECT_TRUE(id >= 0 && id < 11);
  }
  DataOptions p{.name = "synthetic_images"};
  p.synthetic.images = 100, p.synthetic.height = 5, p.synthetic.width = 3, p.synthetic.channels = 3;
  auto images = open_datasets(p, 1), again = open_datasets(p, 2);
  EXPECT_EQ(images.train->size() + images.validation->size(), 100);
  EXPECT_EQ(images.train->identity(), again.train->identity());
  std::vector<float> a(45), b(45);
  std::set<int32_t> labels;
  for (int64_t i = 0; i < 90; ++i) {
    int32_t la, lb;
    images.train->read(0, i, {images.train->spec().tensors, std::array<void*, 2>{a.data(), &la}});
    again.train->read(5, i, {again.train->spec().tensors, std::array<void*, 2>{b.data(), &lb}});
    EXPECT_EQ(a, b);
    EXPECT_EQ(la, lb);
    labels.insert(la);
  }
  EXPECT_EQ(labels.size(), 10u);
}

TEST(DataSource, EachHasDocumentedOptionsOfItsOwn) {
  for (auto& c : builtin_data()) {
    DataOptions o;
    std::set<std::string> keys;
    for (const Field& f : fields(o)) keys.insert(f.key);
    const auto source = c.make();
    EXPECT_FALSE(source->options(o).empty()) << c.name;
    for (const Field& f : source->options(o)) {
      EXPECT_FALSE(f.doc.empty()) << f.key;
      EXPECT_TRUE(keys.insert(f.key).second) << f.key;
    }
  }
}

TEST(SampleMemory, IsFilledByName) {
  const std::vector<TensorSpec> tensors{{"points", DType::kFloat32, {2, 2}}, {"label", DType::kInt32, {}}};
  const SampleBuffer buffer(tensors);
  const SampleMemory sample = buffer.memory();
  const std::span<float> points = sample.of<float>("points");
  ASSERT_EQ(points.size(), 4u);
  points[3] = 2.5F;
  sample.of<int32_t>("label")[0] = 7;
  EXPECT_EQ(static_cast<const float*>(buffer[0])[3], 2.5F);
  EXPECT_EQ(*static_cast<const int32_t*>(buffer[1]), 7);
  expect_error(ExitCode::kInternal, {"no tensor 'lable'", "points, label"}, [&] { sample.of<int32_t>("lable"); });
  expect_error(ExitCode::kInternal, {"'points' is fp32, and not int32"}, [&] { sample.of<int32_t>("points"); });
  expect_error(ExitCode::kInternal, {"no tensor 'label'", "points"}, [&] { sample.first(1).of<int32_t>("label"); });
}

}  // namespace
}  // namespace lockstep::dataset_test
