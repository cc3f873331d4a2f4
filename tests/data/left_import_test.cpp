// What an import that was cut short leaves, and what another one takes of it: only what is an import's, and whole.
#include <gtest/gtest.h>

#include <fstream>
#include <functional>

#include "core/base/hash.h"
#include "core/io/json.h"
#include "data/images/codecs/image_codec.h"
#include "data/import/import.h"
#include "tests/data/killed_import.h"

namespace lockstep::left_import_test {
namespace {

namespace fs = std::filesystem;
using namespace test;

// Of an import that ends with an error behind its saved states, so that what it leaves can be changed.
class LeftImport : public ::testing::Test {
 protected:
  // Whole, and as `out_`.partial after an error in the middle.
  void leave(const Import& import) {
    import_ = import;
    ImportOptions options{.force = true};
    options.threads = 2;
    options.save_every = 0;
    int64_t calls = 0, half = INT64_MAX;
    options.progress = [&](int64_t, int64_t) { require(++calls <= half, ExitCode::kInternal, "half of it"); };
    import(options);
    whole_ = content(out_);
    fs::remove(out_);
    half = calls / 2, calls = 0;
    EXPECT_THROW(import(options), Error);
    ASSERT_TRUE(fs::exists(partial_ + "/journal"));
    fs::remove_all(kept_);
    fs::copy(partial_, kept_, fs::copy_options::recursive);
  }
  void leave_json() {
    const std::string lines = folder_ / "a.jsonl";
    write_file(lines, json_lines(6000));
    leave([=, this](const ImportOptions& o) { import_json({lines}, out_, {.text = "text", .label = "id"}, 0, o); });
  }
  void restore() {
    fs::remove_all(partial_);
    fs::remove(out_);
    fs::copy(kept_, partial_, fs::copy_options::recursive);
  }
  // The journal with one part of its text replaced, and the hash of that.
  void write_journal(const std::string& from, const std::string& to) {
    std::string line = content(kept_ + "/journal");
    line.resize(line.find('\n'));
    const size_t at = line.find(from);
    ASSERT_NE(at, line.npos) << from;
    line.replace(at, from.size(), to);
    write_file(partial_ + "/journal", line + "\n" + to_hex(hash128(line)) + "\n");
  }
  ExitCode go_on() {
    ImportOptions options;
    options.threads = 2;
    try {
      import_(options);
    } catch (const Error& e) {
      return e.code();
    }
    return ExitCode::kOk;
  }
  // Number `key` of the journal's state, as it stands there.
  std::string number_in_journal(const std::string& key) {
    const std::string line = content(kept_ + "/journal"), name = "\"" + key + "\":";
    const size_t at = line.find(name);
    return at == line.npos ? "" : line.substr(at, line.find_first_of(",}", at) - at);
  }

  // Of records with labels, some empty.
  static std::string json_lines(int count) {
    std::string out, text;
    for (int i = 0; i < count; ++i) {
      text += str("word ", i * 7919 % 1000, " ");
      if (text.size() > 300) text.erase(0, 40);
      out += json_line({{"text", i % 97 == 5 ? "" : text}, {"id", int64_t{i % 7}}}) + (i % 50 == 3 ? "\r\n\n" : "\n");
    }
    return out;
  }

  Import import_;
  TemporaryFolder folder_;
  std::string out_ = folder_ / "out.h5", partial_ = out_ + ".partial", kept_ = folder_ / "kept", whole_;
};

// What a user keeps in a folder of that name stays, and nothing is made of it.
TEST_F(LeftImport, TouchesNoFolderThatNoImportHasMade) {
  write_file(folder_ / "a.txt", "to be or not to be");
  const std::string text = folder_ / "a.txt", partial = partial_;
  const auto import = [&] { import_text({text}, out_, TextLevel::kByte, {.force = true}); };
  const auto expect_refused = [&](const std::string& what) {
    expect_error(ExitCode::kOutputLocked, {partial, what}, import);
    EXPECT_FALSE(fs::exists(out_));
  };
  fs::create_directories(partial + "/thesis");
  write_file(partial + "/thesis/chapter.txt", "one");
  expect_refused("holds thesis");
  EXPECT_EQ(content(partial + "/thesis/chapter.txt"), "one");
  write_file(partial + "/lockstep-import", "");  // beside what is an import's, too
  write_file(partial + "/tokens", "");
  expect_refused("holds thesis");
  EXPECT_TRUE(fs::exists(partial + "/tokens"));
  fs::remove_all(partial);
  fs::create_directories(partial + "/tokens");  // a file in an import
  write_file(partial + "/lockstep-import", "");
  expect_refused("holds tokens");
  EXPECT_TRUE(fs::exists(partial + "/tokens"));
  fs::remove_all(partial);
  fs::create_directory(partial);
  write_file(partial + "/labels", "mine");  // its name is one of an import's, but there is no mark
  write_file(partial + "/journal", "dear journal");
  expect_refused("no import has made it");
  EXPECT_EQ(content(partial + "/labels") + content(partial + "/journal"), "minedear journal");
  fs::remove_all(partial);
  // Killed before there was a mark, or with it.
  fs::create_directory(partial);
  import();
  EXPECT_FALSE(fs::exists(partial));
  fs::create_directory(partial);
  write_file(partial + "/lockstep-import", "");
  write_file(partial + "/dataset.h5", "torn");
  import();
  EXPECT_FALSE(fs::exists(partial));
}

TEST_F(LeftImport, DamagedSpoolsAreMadeAnew) {
  leave_json();
  int damaged = 0;
  for (const auto& entry : fs::directory_iterator(kept_)) {
    const std::string name = entry.path().filename().string();
    const auto size = fs::file_size(entry.path());
    if (name == "journal" || size == 0) continue;
    for (bool zeros : {false, true}) {
      restore();
      std::string bytes = content(entry.path().string());
      if (zeros) std::fill(bytes.begin(), bytes.end(), '\0');
      else bytes[bytes.size() / 3] = static_cast<char>(bytes[bytes.size() / 3] ^ 1);
      write_file(partial_ + "/" + name, bytes);
      ++damaged;
      EXPECT_EQ(go_on(), ExitCode::kOk) << name;
      EXPECT_TRUE(content(out_) == whole_) << name << (zeros ? " of zeros" : ", one bit");
      EXPECT_FALSE(fs::exists(partial_));
    }
  }
  EXPECT_GE(damaged, 8);
}

TEST_F(LeftImport, DamageWhileItRunsIsFoundWhenItIsReadBack) {
  leave_json();
  restore();
  ImportOptions options;
  options.threads = 2;
  bool done = false;
  options.progress = [&](int64_t, int64_t) {
    if (std::exchange(done, true)) return;
    std::fstream file(partial_ + "/tokens", std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(7);
    file.put('\x7f');
  };
  expect_error(ExitCode::kBadData, {"tokens", "are not those that were written", "same command again"},
               [&] { import_(options); });
  EXPECT_FALSE(fs::exists(out_));
  EXPECT_EQ(go_on(), ExitCode::kOk);
  EXPECT_TRUE(content(out_) == whole_);
}

TEST_F(LeftImport, NumbersOfAJournalThatCannotBeAreRefused) {
  const std::vector<std::string> values = {"-1",    "-5",    "99",  "9223372036854775807", "-9223372036854775808",
                                           "1e300", "\"0\"", "null"};
  const auto expect_refused = [&](const std::vector<std::string>& keys) {
    for (const std::string& key : keys)
      for (const std::string& value : values) {
        const std::string there = number_in_journal(key);
        ASSERT_NE(there, "") << key;
        if (value == "99" && (key == "byte" || key == "lines" || key == "line" || key == "bad" || key == "empty"))
          continue;  // these could be
        restore();
        write_journal(there, "\"" + key + "\":" + value);
        const ExitCode code = go_on();
        EXPECT_TRUE(code == ExitCode::kBadData || (code == ExitCode::kOk && content(out_) == whole_))
            << key << ": " << value << ", exit " << static_cast<int>(code);
        EXPECT_EQ(fs::exists(out_), code == ExitCode::kOk);
      }
  };
  leave_json();
  expect_refused({"input", "byte", "lines", "bad", "empty", "tokens", "records"});
  for (const char* spool : {"\"tokens\":{\"size\":", "\"labels\":{\"size\":"})
    for (const char* to : {"-", "9", "999999999999"}) {
      restore();
      write_journal(spool, str(spool, to));
      EXPECT_EQ(go_on(), ExitCode::kOk);
      EXPECT_TRUE(content(out_) == whole_) << spool << to;
    }
  restore();
  write_journal("{\"label_names\":", "{\"../a.jsonl\":{\"size\":0,\"hashes\":\"\"},\"label_names\":");
  EXPECT_EQ(go_on(), ExitCode::kOk);
  EXPECT_TRUE(content(out_) == whole_);
  const std::string csv = folder_ / "t.csv", text = folder_ / "t.txt";
  std::string table = "text,label\n";
  for (int i = 0; i < 30000; ++i) table += str("one of several texts ", i * 7919 % 30000, ",", i % 3, "\n");
  write_file(csv, table);
  leave([=, this](const ImportOptions& o) { import_csv_text(csv, out_, {"text", "label"}, o); });
  expect_refused({"byte", "line", "empty", "tokens", "records"});
  write_file(text, table + table + table + table);
  leave([=, this](const ImportOptions& o) { import_text({text}, out_, TextLevel::kByte, o); });
  expect_refused({"input", "byte", "tokens"});
  const std::string image = content(std::string(LOCKSTEP_TEST_IMAGES) + "/grey.png");
  try {
    image_info(image, "grey.png");
  } catch (const Error& e) {
    if (e.code() == ExitCode::kDevice) return;  // built without codecs
    throw;
  }
  for (int i = 0; i < 100; ++i) {
    fs::create_directories(folder_ / str("images/", i % 3));
    write_file(folder_ / str("images/", i % 3, "/", i, ".png"), image);
  }
  leave([=, this](const ImportOptions& o) { import_images(folder_ / "images", out_, {}, o); });
  expect_refused({"images", "pixels", "largest"});
}

}  // namespace
}  // namespace lockstep::left_import_test
