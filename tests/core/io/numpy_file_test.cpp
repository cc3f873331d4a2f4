// NumPy's archives: what is written is read, members as zlib and NumPy leave them are read, and each archive that is
// damaged, ambiguous or hostile is refused by name.
#include "core/io/numpy_file.h"

#include <gtest/gtest.h>
#include <zlib.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <numeric>

#include "core/io/safetensors.h"
#include "core/io/zip.h"
#include "tests/support/files.h"

namespace lockstep::numpy_file_test {
namespace {

using namespace test;

std::string npy(const std::string& type, const std::string& shape, const std::string& values,
                const std::string& order = "False") {
  std::string head = "{'descr': '" + type + "', 'fortran_order': " + order + ", 'shape': (" + shape + "), }\n";
  return std::string("\x93NUMPY\1\0", 8) + static_cast<char>(head.size()) + '\0' + head + values;
}

template <class T>
std::string bytes_of(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

std::string number(uint64_t value, int bytes) {
  std::string out;
  for (int i = 0; i < bytes; ++i, value >>= 8) out += static_cast<char>(value & 0xff);
  return out;
}

std::string deflated(const std::string& text) {
  z_stream z{};
  deflateInit2(&z, 9, Z_DEFLATED, -15, 9, Z_DEFAULT_STRATEGY);
  std::string out(text.size() + 1000, '\0');
  z.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  z.avail_in = static_cast<uInt>(text.size());
  z.next_out = reinterpret_cast<Bytef*>(out.data());
  z.avail_out = static_cast<uInt>(out.size());
  deflate(&z, Z_FINISH);
  out.resize(std::min<size_t>(z.total_out, out.size()));
  deflateEnd(&z);
  return out;
}

// A member, with each number of its headers open to a lie.
struct Member {
  std::string name, data;  // as stored
  int method = 0, flags = 0;
  uint64_t bytes = data.size(), stored = data.size();
  uint32_t crc =
      static_cast<uint32_t>(::crc32(0, reinterpret_cast<const Bytef*>(data.data()), static_cast<uInt>(data.size())));
  std::string local_name = name;
  int64_t moved = 0;  // of the place in the directory
};
Member stored(const std::string& name, const std::string& data) { return {.name = name, .data = data}; }
Member compressed(const std::string& name, const std::string& data) {
  Member m{.name = name, .data = deflated(data), .method = 8};
  m.bytes = data.size();
  m.crc =
      static_cast<uint32_t>(::crc32(0, reinterpret_cast<const Bytef*>(data.data()), static_cast<uInt>(data.size())));
  return m;
}

// Without zip64, as NumPy's directory of a small archive.
std::string archive(const std::vector<Member>& members, const std::string& behind = "") {
  std::string out, directory;
  for (const Member& m : members) {
    const auto common = [&](const std::string& name) {
      return number(20, 2) + number(static_cast<uint64_t>(m.flags), 2) + number(static_cast<uint64_t>(m.method), 2) +
             number(0, 4) + number(m.crc, 4) + number(m.stored, 4) + number(m.bytes, 4) + number(name.size(), 2) +
             number(0, 2);
    };
    directory += "PK\1\2" + number(20, 2) + common(m.name) + number(0, 10) +
                 number(out.size() + static_cast<uint64_t>(m.moved), 4) + m.name;
    out += "PK\3\4" + common(m.local_name) + m.local_name + m.data;
  }
  return out + directory + "PK\5\6" + number(0, 4) + number(members.size(), 2) + number(members.size(), 2) +
         number(directory.size(), 4) + number(out.size(), 4) + number(0, 2) + behind;
}

class Numpy : public ::testing::Test {
 protected:
  WeightFiles open(const std::string& bytes) {
    write_file(path, bytes);
    return WeightFiles::open(path);
  }
  void refuse(const std::string& bytes, const std::string& why) {
    SCOPED_TRACE(why);
    expect_error(ExitCode::kBadData, {"w.npz", why}, [&] {
      const WeightFiles files = open(bytes);
      for (const StoredWeight& w : files.weights()) values(files, w.name);
    });
  }
  std::vector<float> values(const WeightFiles& files, const std::string& name, IndexRange range = {0, -1}) {
    const StoredWeight* w = files.find(name);
    if (!w) throw std::runtime_error("no " + name);
    if (range.end < 0) range.end = w->shape.numel();
    std::vector<float> out(static_cast<size_t>(range.size()));
    files.read(*w, range, out.data());
    return out;
  }
  TemporaryFolder folder;
  const std::string path = folder / "w.npz";
  const std::string array = npy("<f4", "2,", bytes_of<float>({1, 2}));
};

TEST_F(Numpy, WhatIsWrittenIsRead) {
  std::vector<float> a(24);
  std::iota(a.begin(), a.end(), 0.5f);
  {
    NpzWriter writer(path);
    writer.begin("blocks.0.w", {4, 6});
    writer.write(a.data(), 10);
    writer.write(a.data() + 10, 14);
    writer.begin("empty", {0, 3});
    writer.begin("scalar", {});
    writer.write(a.data() + 7, 1);
    writer.begin("b", {2});
    writer.write(a.data(), 2);
    EXPECT_EQ(folder.files(), 1);  // the temporary one
    writer.commit();
  }
  const WeightFiles files = WeightFiles::open(path);
  ASSERT_EQ(files.weights().size(), 4u);
  EXPECT_EQ(values(files, "blocks.0.w"), a);
  EXPECT_EQ(values(files, "blocks.0.w", {5, 8}), (std::vector<float>{5.5f, 6.5f, 7.5f}));
  EXPECT_EQ(values(files, "scalar"), std::vector<float>{7.5f});
  EXPECT_EQ(files.find("scalar")->shape, Shape{});
  EXPECT_EQ(files.find("empty")->shape, (Shape{0, 3}));
  EXPECT_EQ(values(files, "b"), (std::vector<float>{0.5f, 1.5f}));
  EXPECT_EQ(files.find("b.npy"), nullptr);
  // Both places of the checksum are filled in.
  const ZipReader zip(path);
  const ZipMember& m = *zip.find("b.npy");
  const std::string bytes = content(path).substr(static_cast<size_t>(m.begin), static_cast<size_t>(m.bytes));
  EXPECT_EQ(m.crc, ::crc32(0, reinterpret_cast<const Bytef*>(bytes.data()), static_cast<uInt>(bytes.size())));
  EXPECT_EQ(bytes.find("{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }"), 10u);
  EXPECT_EQ((bytes.size() - 8) % 64, 0u) << "elements are aligned as NumPy's";
}

TEST_F(Numpy, AnArchiveThatIsNotCommittedLeavesNothing) {
  {
    NpzWriter writer(path);
    writer.begin("a", {4});
  }
  EXPECT_EQ(folder.files(), 0);
}

TEST_F(Numpy, CompressedMembersAndOtherTypesAreRead) {
  std::vector<float> many(300'000);
  for (size_t i = 0; i < many.size(); ++i) many[i] = static_cast<float>(i % 1000) / 3;
  const WeightFiles files =
      open(archive({compressed("a.npy", npy("<f4", "300, 1000", bytes_of(many))), stored("b.npy", array),
                    compressed("h.npy", npy("<f2", "3,", bytes_of<uint16_t>({0x3c00, 0xc000, 0x0001}))),
                    stored("d.npy", npy("<f8", "1, 2", bytes_of<double>({0.1, -3}))),
                    stored("i.npy", npy("<i8", "", number(7, 8))), compressed("none.npy", npy("<f4", "0,", ""))}));
  EXPECT_EQ(values(files, "a"), many);
  for (int64_t begin : {200'000, 250'000, 100})  // on, on, and back
    EXPECT_EQ(values(files, "a", {begin, begin + 3}),
              std::vector<float>(many.begin() + begin, many.begin() + begin + 3));
  EXPECT_EQ(values(files, "b"), (std::vector<float>{1, 2}));
  EXPECT_EQ(values(files, "h"), (std::vector<float>{1, -2, 0x1p-24f}));
  EXPECT_EQ(values(files, "d"), (std::vector<float>{0.1f, -3}));
  EXPECT_EQ(values(files, "none"), std::vector<float>{});
  expect_error(ExitCode::kBadData, {"w.npz", "tensor i has type I64"}, [&] { values(files, "i"); });
  EXPECT_EQ(open(archive({})).weights().size(), 0u);
}

TEST_F(Numpy, ArchivesThatDoNotFitAreRefused) {
  const std::string good = archive({stored("a.npy", array), compressed("b.npy", array)});
  EXPECT_EQ(open(good).weights().size(), 2u);
  for (size_t size = 4; size < good.size(); ++size) {
    write_file(path, good.substr(0, size));
    expect_error(ExitCode::kBadData, {"w.npz"}, [&] { WeightFiles::open(path); });
  }
  refuse(good + "x", "does not end as an archive");
  refuse("x" + good, "w.npz");
  refuse(archive({stored("a.npy", array), stored("a.npy", array)}), "member a.npy is there twice");
  refuse(archive({stored("../a.npy", array)}), "slashes");
  refuse(archive({stored("p/a.npy", array)}), "slashes");
  refuse(archive({stored("p\\a.npy", array)}), "slashes");
  refuse(archive({stored(std::string("a\0.npy", 6), array)}), "control characters");
  refuse(archive({stored("a\n.npy", array)}), "control characters");
  refuse(archive({stored("", array)}), "empty name");
  refuse(archive({stored("a.txt", array)}), "member a.txt is no array");
  const auto with = [&](const std::function<void(Member&)>& change, bool compress = false) {
    Member m = compress ? compressed("a.npy", array) : stored("a.npy", array);
    change(m);
    return archive({m, stored("b.npy", array)});
  };
  refuse(with([](Member& m) { m.flags = 1; }), "member a.npy: is encrypted");
  refuse(with([](Member& m) { m.flags = 8; }), "has its size behind its data");
  refuse(with([](Member& m) { m.flags = 1 << 13; }), "flags that are not known");
  refuse(with([](Member& m) { m.method = 12; }), "compressed by method 12");
  refuse(with([](Member& m) { m.local_name = "c.npy"; }), "is not that of the directory");
  refuse(with([](Member& m) { m.bytes += 4; }), "is stored in");
  refuse(with([](Member& m) { m.bytes += 4, m.stored += 4; }), "gap or overlap");
  refuse(with([](Member& m) { m.bytes -= 4, m.stored -= 4; }), "gap or overlap");
  refuse(with([](Member& m) { m.moved = 1; }), "gap or overlap");
  refuse(with([](Member& m) { m.stored = m.bytes = 0xffff; }), "is not in the file");
  refuse(archive({stored("a.npy", array), {.name = "b.npy", .data = array, .moved = -1}}), "gap or overlap");
  refuse(with([](Member& m) { m.bytes += 4; }, true), "12 bytes follow");
  refuse(with([](Member& m) { m.bytes -= 4; }, true), "4 bytes follow");
  refuse(with([](Member& m) { m.bytes = 500 << 20; }, true), "decompression bombs");
  refuse(with([](Member& m) { m.crc ^= 1; }, true), "its checksum differs");
  refuse(with([](Member& m) { m.data[m.data.size() / 2] ^= 0x55; }, true), "a");
}

TEST_F(Numpy, ArraysThatDoNotFitAreRefused) {
  const std::string eight(8, '\0');
  const auto refuse_array = [&](const std::string& bytes, const std::string& why) {
    refuse(archive({stored("a.npy", bytes)}), why);
    refuse(archive({compressed("a.npy", bytes)}), why);
    refuse(archive({stored("a.npy", bytes)}), "array a");
  };
  refuse_array(npy("<f4", "3,", eight), "8 bytes follow");
  refuse_array(npy("<f4", "1,", eight), "8 bytes follow");
  refuse_array(npy("<f4", "2, 1", eight, "True"), "it is not in C order");
  refuse_array(npy(">f4", "2,", eight), "not little-endian");
  refuse_array(npy("|O8", "1,", eight), "type O8");
  refuse_array(npy("|V2", "4,", eight), "type V2");
  refuse_array(npy("<f4", "-2,", eight), "its shape is not valid");
  refuse_array(npy("<f4", "1,1,1,1,1,1,1,1,2", eight), "its shape is not valid");
  refuse_array(npy("<f4", "4611686018427387904, 4", eight), "8 bytes follow");
  refuse_array(npy("<f4", "4611686018427387904, 4, 0", ""), "0 bytes follow");
  refuse_array(npy("<f4", "2,), 'more': (1", eight), "more than a shape");
  refuse_array("\x93NUMPY", "shorter than a header");
  refuse_array("PK\3\4 nothing of NumPy", "\\x93NUMPY");
  refuse_array(std::string("\x93NUMPY\1\0\xff\xff", 10) + eight, "its header has 65535 bytes");
}

TEST_F(Numpy, AFileOfOneArrayIsRead) {
  write_file(path, array);
  const NumpyFile file(path);
  ASSERT_EQ(file.names(), std::vector<std::string>{""});
  const NumpyArray a = file.array("");
  EXPECT_EQ(a.shape, Shape{2});
  float second = 0;
  file.read(a, {4, 8}, &second);
  EXPECT_EQ(second, 2);
}

}  // namespace
}  // namespace lockstep::numpy_file_test
