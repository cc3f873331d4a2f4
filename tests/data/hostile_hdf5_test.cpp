// HDF5 files that were made to read other files, to run code or to take memory: each is refused when it is opened.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <functional>

#include "core/io/hdf5/hdf5_file.h"
#include "core/io/hdf5/hdf5_handles.h"
#include "data/import/import.h"
#include "data/samples/dataset_file.h"
#include "data/samples/inspect.h"
#include "tests/support/files.h"

namespace lockstep::hostile_hdf5_test {
namespace {

using hdf5::Door;
using hdf5::Id;
using test::expect_error;
using test::TemporaryFolder;
using test::write_file;

class HostileHdf5 : public ::testing::Test {
 protected:
  // Makes a file as another program may.
  void make(const std::function<void(hid_t file)>& fill) {
    Door door;
    Id access(H5Pcreate(H5P_FILE_ACCESS), H5Pclose);
    H5Pset_libver_bounds(access, H5F_LIBVER_V110, H5F_LIBVER_V110);
    Id file(H5Fcreate(path_.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, access), H5Fclose);
    ASSERT_GE(hid_t{file}, 0);
    fill(file);
  }
  // A dataset of these extents, laid out as `plist` says; written where there are values.
  static void dataset(hid_t file, const char* name, std::vector<hsize_t> extents, hid_t plist,
                      const std::vector<int32_t>& values = {}, hid_t type = H5T_STD_I32LE) {
    Id space(extents.empty() ? H5Screate(H5S_SCALAR)
                             : H5Screate_simple(static_cast<int>(extents.size()), extents.data(), nullptr),
             H5Sclose);
    Id d(H5Dcreate2(file, name, type, space, H5P_DEFAULT, plist, H5P_DEFAULT), H5Dclose);
    ASSERT_GE(hid_t{d}, 0) << name;
    if (!values.empty()) {
      ASSERT_GE(H5Dwrite(d, H5T_NATIVE_INT32, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data()), 0);
    }
  }
  static Id layout() { return {H5Pcreate(H5P_DATASET_CREATE), H5Pclose}; }
  void refused(std::initializer_list<std::string> parts) {
    expect_error(ExitCode::kBadData, {path_}, [&] { Hdf5File::open(path_); });
    expect_error(ExitCode::kBadData, parts, [&] { Hdf5File::open(path_); });
    expect_error(ExitCode::kBadData, parts, [&] { inspect_dataset(path_); });
  }
  TemporaryFolder folder_;
  std::string path_ = folder_ / "hostile.h5";
};

TEST_F(HostileHdf5, HonestFilesOfOtherProgramsOpen) {
  make([](hid_t file) {
    dataset(file, "contiguous", {5}, H5P_DEFAULT, {1, 2, 3, 4, 5});
    Id compact = layout(), packed = layout();
    H5Pset_layout(compact, H5D_COMPACT);
    dataset(file, "compact", {5}, compact, {1, 2, 3, 4, 5});
    const hsize_t chunk = 20000;
    H5Pset_chunk(packed, 1, &chunk);
    H5Pset_shuffle(packed);
    H5Pset_deflate(packed, 9);
    H5Pset_fletcher32(packed);
    Id group(H5Gcreate2(file, "group", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT), H5Gclose);
    dataset(group, "zeros", {100000}, packed, std::vector<int32_t>(100000));
    dataset(file, "empty", {0}, H5P_DEFAULT);
  });
  const Hdf5File file = Hdf5File::open(path_);
  EXPECT_EQ(file.list(), (std::vector<std::string>{"compact", "contiguous", "empty", "group/zeros"}));
  std::vector<int32_t> back(100000, 7);
  file.read("group/zeros", StoredType::kInt32, {0, 100000}, back.data());
  EXPECT_EQ(back, std::vector<int32_t>(100000));
  file.read("contiguous", StoredType::kInt32, {4, 5}, back.data());
  EXPECT_EQ(back[0], 5);
}

TEST_F(HostileHdf5, ValuesInOtherFilesAreRefused) {
  write_file(folder_ / "secret", "sesame!!");
  make([&](hid_t file) {
    Id outside = layout();
    H5Pset_external(outside, (folder_ / "secret").c_str(), 0, 8);
    dataset(file, "vocabulary", {2}, outside);
  });
  refused({"dataset 'vocabulary'", "external storage"});
  make([&](hid_t file) {
    const hsize_t two = 2;
    Id elsewhere = layout(), space(H5Screate_simple(1, &two, nullptr), H5Sclose);
    H5Pset_virtual(elsewhere, space, (folder_ / "other.h5").c_str(), "x", space);
    dataset(file, "tokens", {2}, elsewhere);
  });
  refused({"dataset 'tokens'", "virtual layout"});
}

TEST_F(HostileHdf5, LinksThatAreNotHardAreRefused) {
  {
    Hdf5File other = Hdf5File::create(folder_ / "other.h5");
    const int32_t one = 1;
    other.write_all("x", StoredType::kInt32, {1}, &one);
    other.close();
  }
  make([&](hid_t file) {
    H5Lcreate_external((folder_ / "other.h5").c_str(), "/x", file, "tokens", H5P_DEFAULT, H5P_DEFAULT);
  });
  refused({"'tokens' is a link"});
  make([&](hid_t file) {
    dataset(file, "x", {1}, H5P_DEFAULT, {1});
    H5Lcreate_soft("/x", file, "tokens", H5P_DEFAULT, H5P_DEFAULT);
  });
  refused({"'tokens' is a link"});
  make([&](hid_t file) {
    Id group(H5Gcreate2(file, "group", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT), H5Gclose);
    H5Lcreate_soft("/nowhere", group, "x", H5P_DEFAULT, H5P_DEFAULT);
  });
  refused({"'group/x' is a link"});
  make([&](hid_t file) {
    dataset(file, "x", {1}, H5P_DEFAULT, {1});
    H5Lcreate_hard(file, "x", file, "y", H5P_DEFAULT, H5P_DEFAULT);
  });
  refused({"second name"});
  make([&](hid_t file) {  // a group that holds itself
    Id group(H5Gcreate2(file, "group", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT), H5Gclose);
    H5Lcreate_hard(file, "/", group, "again", H5P_DEFAULT, H5P_DEFAULT);
  });
  refused({"'group/again' is a second name"});
  make([&](hid_t file) {
    std::string name = "g";
    for (int i = 0; i < 40; ++i, name += "/g")
      Id(H5Gcreate2(file, name.c_str(), H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT), H5Gclose);
  });
  refused({"deeper than 32 groups"});
}

TEST_F(HostileHdf5, UnknownFiltersAndTypesAreRefusedAndNoPluginLoads) {
  make([&](hid_t file) {
    constexpr H5Z_filter_t kPrivate = 305;
    const H5Z_class2_t mine{H5Z_CLASS_T_VERS,
                            kPrivate,
                            1,
                            1,
                            "as it is",
                            nullptr,
                            nullptr,
                            [](unsigned, size_t, const unsigned*, size_t n, size_t*, void**) { return n; }};
    ASSERT_GE(H5Zregister(&mine), 0);
    const hsize_t chunk = 4;
    Id filtered = layout();
    H5Pset_chunk(filtered, 1, &chunk);
    H5Pset_filter(filtered, kPrivate, 0, 0, nullptr);
    dataset(file, "tokens", {4}, filtered, {1, 2, 3, 4});
    H5Zunregister(kPrivate);
  });
  refused({"dataset 'tokens'", "filter 305"});
  make([&](hid_t file) {
    Id text(H5Tcopy(H5T_C_S1), H5Tclose);
    H5Tset_size(text, H5T_VARIABLE);
    dataset(file, "x", {4}, H5P_DEFAULT, {}, text);
  });
  refused({"dataset 'x'", "element type"});
  make([&](hid_t file) {
    Id type(H5Tcopy(H5T_STD_I32LE), H5Tclose);
    H5Tcommit2(file, "type", type, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
  });
  refused({"'type' is neither a group nor a dataset"});
  make([&](hid_t file) { dataset(file, "scalar", {}, H5P_DEFAULT, {1}); });
  refused({"dataset 'scalar' has 0 dimensions"});
  unsigned outside = 0, inside = 1;
  H5PLget_loading_state(&outside);
  {
    Door door;
    H5PLget_loading_state(&inside);
  }
  EXPECT_EQ(inside, 0u) << "no file can have a plugin loaded";
  unsigned after = 0;
  H5PLget_loading_state(&after);
  EXPECT_EQ(after, outside) << "a program that uses HDF5 itself keeps its setting";
}

// A file of some thousand bytes that asks for a TiB: refused before any of it is taken.
TEST_F(HostileHdf5, AnnouncedSizesAreComparedWithWhatIsStored) {
  const hsize_t vast = hsize_t{1} << 40, chunk = 1 << 20;
  make([&](hid_t file) {
    Id chunked = layout();
    H5Pset_chunk(chunked, 1, &chunk);
    dataset(file, "tokens_hash", {vast / 8}, chunked);
  });
  refused({"'tokens_hash' announces", "only 0 bytes are stored"});
  make([&](hid_t file) { dataset(file, "tokens", {vast}, H5P_DEFAULT); });
  refused({"'tokens' announces", "only 0 bytes are stored"});
  make([&](hid_t file) {
    Id chunked = layout();
    H5Pset_chunk(chunked, 1, &chunk);
    dataset(file, "tokens", {hsize_t{1} << 50}, chunked);
  });
  refused({"'tokens' has an impossible size"});
  make([&](hid_t file) {  // one chunk of 256 MiB for a few values
    const hsize_t large = 64 << 20, few = 16, unlimited = H5S_UNLIMITED;
    Id packed = layout(), space(H5Screate_simple(1, &few, &unlimited), H5Sclose);
    H5Pset_chunk(packed, 1, &large);
    H5Pset_deflate(packed, 9);
    Id d(H5Dcreate2(file, "tokens", H5T_STD_I32LE, space, H5P_DEFAULT, packed, H5P_DEFAULT), H5Dclose);
    const std::vector<char> stored(1000, 'x');
    const hsize_t origin = 0;
    ASSERT_GE(H5Dwrite_chunk(d, H5P_DEFAULT, 0, &origin, stored.size(), stored.data()), 0);
  });
  refused({"'tokens' has chunks of 268435456 bytes, but only 1000 bytes are stored"});
}

// Chunks that were never written would be read as zeros, and take memory like any others.
TEST_F(HostileHdf5, EachChunkIsThereAndOfAReadableSize) {
  auto one_chunk = [&](const std::vector<hsize_t>& extents, const std::vector<hsize_t>& chunk, size_t bytes) {
    make([&](hid_t file) {
      std::vector<hsize_t> most(extents.size(), H5S_UNLIMITED);
      Id packed = layout();
      Id space(H5Screate_simple(static_cast<int>(extents.size()), extents.data(), most.data()), H5Sclose);
      H5Pset_chunk(packed, static_cast<int>(chunk.size()), chunk.data());
      H5Pset_deflate(packed, 9);
      Id d(H5Dcreate2(file, "images", H5T_STD_U8LE, space, H5P_DEFAULT, packed, H5P_DEFAULT), H5Dclose);
      const std::vector<char> stored(bytes, 'x');
      const std::vector<hsize_t> origin(extents.size());
      ASSERT_GE(H5Dwrite_chunk(d, H5P_DEFAULT, 0, origin.data(), stored.size(), stored.data()), 0);
    });
  };
  one_chunk({1, 64, 64, 1}, {1 << 20, 1, 1, 1}, 2000);
  refused({"'images' has 1 of 4096 chunks"});
  one_chunk({1 << 29}, {1 << 29}, 600000);
  expect_error(ExitCode::kBadData, {path_, "chunks of 536870912 rows of 1 bytes; a chunk may have at most 256 MiB"},
               [&] {
                 StoredRows(stored_rows(std::make_shared<Hdf5File>(Hdf5File::open(path_)), "images"), {0}, 1 << 20,
                            [](IndexRange, const uint8_t*) {});
               });
}

// libhdf5 copies them with the length that the file's heap says, into memory of the length that the attribute says.
TEST_F(HostileHdf5, TextsOfVariableLengthAreNotRead) {
  make([&](hid_t file) {
    Id text(H5Tcopy(H5T_C_S1), H5Tclose), space(H5Screate(H5S_SCALAR), H5Sclose);
    H5Tset_size(text, H5T_VARIABLE);
    Id a(H5Acreate2(file, "format", text, space, H5P_DEFAULT, H5P_DEFAULT), H5Aclose);
    const char* value = "lockstep-data";
    ASSERT_GE(H5Awrite(a, text, &value), 0);
  });
  expect_error(ExitCode::kBadData, {path_, "'format' is a text of variable length"}, [&] { inspect_dataset(path_); });
}

TEST_F(HostileHdf5, TextsDoNotForgeLinesOfTheLog) {
  Hdf5File file = Hdf5File::create(path_);
  file.set_attribute("", "format", std::string("x\nerror: forged"));
  file.close();
  expect_error(ExitCode::kBadData, {path_, "holds control characters: 'x\\nerror: forged'"},
               [&] { inspect_dataset(path_); });
}

TEST_F(HostileHdf5, AnnouncedClassesAreBounded) {
  const std::vector<uint8_t> zeros(40);
  Hdf5File file = Hdf5File::create(path_);
  DatasetHeader h;
  h.kind = DataKind::kImages;
  h.images = {10, 2, 2, 1};
  h.classes = int64_t{1} << 31;
  h.mean = {0}, h.stddev = {1};
  ChunkWriter images(file, "images", StoredType::kUInt8, h.images, 10);
  images.append(zeros.data(), 10);
  h.hashes = images.finish();
  ChunkWriter labels(file, "labels", StoredType::kInt32, {10}, 10);
  labels.append(zeros.data(), 10);
  h.label_hashes = labels.finish();
  write_dataset_header(file, h);
  file.close();
  expect_error(ExitCode::kBadData, {path_, "'classes' is 2147483648"}, [&] { inspect_dataset(path_); });
}

TEST_F(HostileHdf5, OnlyRegularFilesAreOpenedAndNoneIsWaitedFor) {
  ASSERT_EQ(::mkfifo(path_.c_str(), 0600), 0);
  expect_error(ExitCode::kBadData, {path_, "is not a file"}, [&] { Hdf5File::open(path_); });
  expect_error(ExitCode::kBadData, {path_, "is not a file"},
               [&] { import_text({path_}, folder_ / "x.h5", TextLevel::kByte); });
  expect_error(ExitCode::kBadData, {path_, "is not a file"}, [&] { import_idx(path_, path_, folder_ / "x.h5"); });
  expect_error(ExitCode::kBadData, {"is not a file"}, [&] { Hdf5File::open("/dev/null"); });
  {
    Hdf5File file = Hdf5File::create(folder_ / "real.h5");
    file.set_attribute("", "x", int64_t{3});
    file.close();
  }
  std::filesystem::create_symlink("real.h5", folder_ / "link.h5");
  EXPECT_EQ(Hdf5File::open(folder_ / "link.h5").int_attribute("", "x"), 3) << "a link to a file is one's own choice";
  std::filesystem::create_symlink(path_, folder_ / "pipe.h5");
  expect_error(ExitCode::kBadData, {"is not a file"}, [&] { Hdf5File::open(folder_ / "pipe.h5"); });
}

}  // namespace
}  // namespace lockstep::hostile_hdf5_test
