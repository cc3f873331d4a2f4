// Long imports: the output is the same at any number of threads, and after kills of the process.
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <random>

#include "core/io/json.h"
#include "data/import/import.h"
#include "data/import/in_order.h"
#include "data/samples/dataset_file.h"
#include "data/samples/text/token_dataset.h"
#include "data/text/tokenizer/block_encoder.h"
#include "data/text/tokenizer/normalizer.h"
#include "data/text/tokenizer/train_bpe.h"
#include "tests/data/killed_import.h"
#include "tests/data/make_files.h"

namespace lockstep::long_import_test {
namespace {

namespace fs = std::filesystem;
using namespace test;

// Text in which words of all kinds end at odd places.
std::string odd_text(size_t bytes, unsigned seed) {
  static const std::vector<std::string> parts = {"the ",
                                                 "quick",
                                                 " brown",
                                                 "fox's",
                                                 " don't",
                                                 "\n\n  \n",
                                                 "12345678901",
                                                 "   ",
                                                 "\t",
                                                 "na\xC3\xAFve ",
                                                 "\xE4\xBD\xA0\xE5\xA5\xBD",
                                                 "\xF0\x9F\x99\x82",
                                                 "<|end|>",
                                                 "<|",
                                                 "|>",
                                                 "...!!",
                                                 "(x)",
                                                 " a",
                                                 "=====",
                                                 "\r\n",
                                                 "e\xCC\x81"};
  std::mt19937 random(seed);
  std::string out;
  while (out.size() < bytes) out += parts[random() % parts.size()];
  return out;
}

std::shared_ptr<const BytePairs> make_pairs(const std::string& folder, std::vector<std::string> patterns = {},
                                            bool nfc = false) {
  write_file(folder + "/train.txt", odd_text(20000, 1));
  BpeTraining training;
  training.vocabulary = 400;
  training.special = {"<|end|>"};
  BpeTables tables = train_bpe({folder + "/train.txt"}, training);
  tables.added.push_back({static_cast<int32_t>(tables.tokens.size()), "(x)<|=====", false, false});
  tables.tokens.push_back("(x)<|=====");
  if (!patterns.empty()) tables.patterns = std::move(patterns);
  tables.nfc = nfc;
  return std::make_shared<const BytePairs>(std::move(tables), "the test's");
}

TEST(InOrder, ItemsAreUsedInOrderByAnyNumberOfThreads) {
  for (int threads : {1, 2, 7}) {
    int next = 0;
    std::vector<int> used;
    std::atomic<int> most = 0, now = 0;
    in_order<std::pair<int, int>>(
        threads,
        [&](auto& item) {
          item.first = next;
          return next < 200 ? (++next, kBytesInFlight / 2) : 0;
        },
        [&](auto& item, int thread) {
          EXPECT_LT(thread, threads);
          const int here = ++now;
          for (int seen = most; here > seen && !most.compare_exchange_weak(seen, here);) continue;
          item.second = item.first * 2;
          --now;
        },
        [&](auto& item) { used.push_back(item.second); });
    ASSERT_EQ(used.size(), 200u);
    for (int i = 0; i < 200; ++i) EXPECT_EQ(used[static_cast<size_t>(i)], 2 * i);
    EXPECT_LE(most, threads);
  }
}

TEST(InOrder, TheFirstErrorIsThrownAfterWhatCameBefore) {
  for (int threads : {1, 3}) {
    for (const std::string& where : {std::string("read"), std::string("work"), std::string("use")}) {
      int next = 0, used = 0;
      expect_error(ExitCode::kBadData, {where + " 20"}, [&] {
        in_order<int>(
            threads,
            [&](int& item) {
              require(where != "read" || next < 20, ExitCode::kBadData, "read ", next);
              item = next++;
              return int64_t{1};
            },
            [&](int& item, int) { require(where != "work" || item < 20, ExitCode::kBadData, "work ", item); },
            [&](int& item) {
              require(where != "use" || item < 20, ExitCode::kBadData, "use ", item);
              ++used;
            });
      });
      EXPECT_EQ(used, 20) << where;
    }
  }
}

class LongImport : public ::testing::Test {
 protected:
  std::string put(const std::string& name, const std::string& bytes) {
    write_file(folder_ / name, bytes);
    return folder_ / name;
  }
  std::string put_gzip(const std::string& name, const std::string& bytes) {
    write_gzip(folder_ / name, bytes);
    return folder_ / name;
  }
  // The same file at 1, 2 and 5 threads.
  void expect_same_at_any_threads(const Import& import) {
    std::string first;
    for (int threads : {1, 2, 5}) {
      ImportOptions options{.force = true};
      options.threads = threads;
      import(options);
      if (first.empty()) first = content(out_);
      EXPECT_TRUE(content(out_) == first) << threads << " threads";
    }
    whole_ = first;
  }

  // Killed again and again, each time a little later, until it is complete.
  void expect_same_after_kills(const Import& import) {
    ASSERT_FALSE(whole_.empty());
    fs::remove(out_);
    const int kills = kill_until_complete(out_, import);
    EXPECT_GE(kills, 2);
    EXPECT_TRUE(content(out_) == whole_) << "after " << kills << " kills";
  }

  ImportOptions with(ImportOptions options, std::shared_ptr<const BytePairs> pairs, const std::string& separator = "") {
    options.vocabulary = std::make_shared<const Vocabulary>(Vocabulary::byte_pairs(std::move(pairs)));
    options.separator = separator;
    return options;
  }

  // Of records with labels, some empty.
  std::string json_lines(int count) {
    std::string out = "\xEF\xBB\xBF";
    for (int i = 0; i < count; ++i) {
      const std::string text =
          i % 97 == 5 ? "" : odd_text(static_cast<size_t>(400 + i % 300), static_cast<unsigned>(i));
      out += json_line({{"text", text}, {"id", int64_t{i % 7}}}) + (i % 50 == 3 ? "\r\n\n" : "\n");
    }
    return out;
  }

  TemporaryFolder folder_;
  std::string out_ = folder_ / "out.h5", whole_;
};

TEST_F(LongImport, BlocksGiveTheIdsOfTheWholeText) {
  const std::string number = R"(\p{N}{1,3})", chinese = R"([\x{4e00}-\x{9fa5}]+)";
  const std::vector<std::vector<std::string>> all = {{},
                                                     {std::string(named_pattern("llama3"))},
                                                     {number, std::string(named_pattern("gpt2"))},
                                                     {R"([a-z]+|\s+)"},
                                                     {R"([^<]+)"}};
  std::vector<std::string> texts{odd_text(9000, 7)};
  texts.emplace_back(3000, '7');
  texts.emplace_back(2000, ' ');
  for (const auto& patterns : all) {
    const auto pairs = make_pairs(folder_ / "", patterns);
    for (const std::string& text : texts)
      for (size_t size : {1u, 7u, 100u, 1000u, 5000u}) {
        std::vector<int32_t> expected, ids;
        BpeEncoder whole(*pairs, true), part(*pairs, true);
        whole.add(text, expected);
        whole.finish(expected);
        auto joiner = std::make_unique<BlockJoiner>(*pairs, true);
        for (size_t at = 0, end, count = 0; at < text.size(); at = end, ++count) {
          end = std::min(text.size(), at + size);
          while (end < text.size() && (static_cast<uint8_t>(text[end]) & 0xC0) == 0x80) ++end;
          TextBlock block;
          block.text = text.substr(at, end - at);
          encode_block(part, *pairs, block);
          joiner->add(block, ids);
          if (count % 3 != 1) continue;
          const std::string rest = joiner->rest();  // another one goes on
          joiner = std::make_unique<BlockJoiner>(*pairs, true);
          joiner->begin_with(rest, ids);
        }
        joiner->finish(ids);
        EXPECT_EQ(ids, expected) << "blocks of " << size;
      }
  }
}

TEST_F(LongImport, OfTextByTokens) {
  const std::string a = put("a.txt", odd_text(3 << 20, 2)),
                    b = put("b.txt", odd_text(100, 3) + std::string(2 << 20, '5'));
  const auto pairs = make_pairs(folder_ / "");
  const Import import = [&](const ImportOptions& o) {
    import_text({a, b, a}, out_, TextLevel::kBpe, with(o, pairs, "<|end|>"));
  };
  expect_same_at_any_threads(import);
  expect_same_after_kills(import);
}

TEST_F(LongImport, OfTextThatIsNormalised) {
  if (!can_normalise()) GTEST_SKIP() << "built without utf8proc";
  const std::string input = put("a.txt", odd_text(3 << 20, 9));
  const auto pairs = make_pairs(folder_ / "", {}, true);
  const Import import = [&](const ImportOptions& o) { import_text({input}, out_, TextLevel::kBpe, with(o, pairs)); };
  expect_same_at_any_threads(import);
  std::vector<int32_t> expected, ids;
  BpeEncoder encoder(*pairs);
  encoder.add(content(input), expected);
  encoder.finish(expected);
  const auto file = open_dataset_file(out_, 1 << 30);
  ids.resize(static_cast<size_t>(file->header.tokens));
  FileTokens(file).read({0, file->header.tokens}, ids.data());
  EXPECT_TRUE(ids == expected);
  expect_same_after_kills(import);
}

TEST_F(LongImport, OfTextWhoseInvalidBytesAreReplaced) {
  std::string text = odd_text(3 << 20, 4);
  for (size_t at = 1000; at < text.size(); at += 1 << 18) text[at] = '\xFF';
  const std::string input = put("a.txt", text);
  const auto pairs = make_pairs(folder_ / "");
  const Import import = [&](ImportOptions o) {
    o.invalid = InvalidBytes::kReplace;
    o.special_tokens = true;
    import_text({input}, out_, TextLevel::kBpe, with(o, pairs));
  };
  expect_same_at_any_threads(import);
  expect_same_after_kills(import);
}

TEST_F(LongImport, OfTextByCharactersAndBytes) {
  const std::string a = put("a.txt", odd_text(2 << 20, 5)), b = put_gzip("b.gz", odd_text(2 << 20, 6));
  for (TextLevel level : {TextLevel::kChar, TextLevel::kByte}) {
    const Import import = [&](const ImportOptions& o) { import_text({a, b}, out_, level, o); };
    expect_same_at_any_threads(import);
    expect_same_after_kills(import);
  }
}

TEST_F(LongImport, OfJsonLinesAndTables) {
  const std::string lines = put("a.jsonl", json_lines(1500)), zipped = put_gzip("b.gz", json_lines(1000));
  const auto pairs = make_pairs(folder_ / "");
  const Import json = [&](const ImportOptions& o) {
    import_json({lines, zipped}, out_, {.text = "text", .label = "id", .weight = "id"}, 0, with(o, pairs, "<|end|>"));
  };
  expect_same_at_any_threads(json);
  expect_same_after_kills(json);
  std::string table = "review,weight,label\n";
  for (int i = 0; i < 4000; ++i) {
    std::string text = odd_text(static_cast<size_t>(i % 11 ? 500 : 0), static_cast<unsigned>(i));
    for (size_t at = 0; (at = text.find('"', at)) != text.npos; at += 2) text.insert(at, 1, '"');
    table += str("\"", text, "\",", i % 5, ",", i % 3 ? "good" : "bad", "\n");
  }
  const std::string csv = put("t.csv", table);
  const Import texts = [&](const ImportOptions& o) {
    import_csv_text(csv, out_, {.text = "review", .label = "label", .weight = "weight"}, with(o, pairs));
  };
  expect_same_at_any_threads(texts);
  expect_same_after_kills(texts);
}

TEST_F(LongImport, OfTablesOfNumbers) {
  std::mt19937 random(3);
  std::string table = "a,zone,b,price\n";
  for (int i = 0; i < 30000; ++i)
    table += str(random() % 100000, ",z", random() % 9, ",", i % 77 ? str(random() % 1000, ".5") : "NA", ",",
                 random() % 50, "\n");
  const std::string csv = put("t.csv", table), zipped = put_gzip("t.csv.gz", table);
  for (bool regression : {false, true}) {
    TableOptions columns{.fill_missing = true};
    (regression ? columns.target : columns.label) = "price";
    expect_same_at_any_threads([&](const ImportOptions& o) { import_csv(csv, out_, columns, o); });
    import_csv(zipped, out_, columns, {.force = true});
    EXPECT_TRUE(content(out_) == whole_) << "of gzip";
  }
}

// What is left of an import that failed for its input, and which of it another import takes.
TEST_F(LongImport, GoesOnOnlyWhereInputsAndOptionsAreTheSame) {
  std::string good = json_lines(1500);
  const std::string lines = put("a.jsonl", good + "{\"text\": 3}\n" + json_lines(1500).substr(3));
  const auto import = [&](int64_t skip_bad) {
    ImportOptions options{.force = true};
    options.threads = 2;
    options.save_every = 0;
    import_json({lines}, out_, {.text = "text"}, skip_bad, options);
  };
  const auto said = [&](const std::function<void()>& action) {
    ::testing::internal::CaptureStderr();
    action();
    return ::testing::internal::GetCapturedStderr();
  };
  const std::string partial = out_ + ".partial";
  import(1);
  const std::string whole = content(out_);
  const auto fail = [&] { expect_error(ExitCode::kBadData, {"a.jsonl:15", "is no text"}, [&] { import(0); }); };
  const auto expect_said = [&](const std::string& what) {
    const std::string text = said([&] { import(1); });
    EXPECT_NE(text.find(what), text.npos) << text << "\nlacks: " << what;
    EXPECT_FALSE(fs::exists(partial));
    EXPECT_TRUE(content(out_) == whole) << what;
  };
  EXPECT_NE(said(fail).find("give the same command again"), std::string::npos);
  EXPECT_TRUE(fs::exists(partial + "/journal"));
  expect_said("goes on with what was done before");  // --skip-bad is no part of what is made
  fail();
  const std::string journal = content(partial + "/journal");
  for (size_t size : {size_t{0}, size_t{1}, journal.size() / 2, journal.size() - 1}) {
    if (!fs::exists(partial)) fail();
    write_file(partial + "/journal", journal.substr(0, size));
    expect_said("its journal is damaged; the import begins anew");
  }
  fail();
  write_file(partial + "/journal", "x" + journal.substr(1));
  expect_said("its journal is damaged");
  fail();
  fs::resize_file(partial + "/tokens", 5);
  expect_said("tokens is shorter than its journal says");
  fail();
  fs::remove(partial + "/journal");
  expect_said("cannot be continued");
  fail();
  write_file(partial + "/tokens", content(partial + "/tokens") + "torn bytes behind what was saved");
  expect_said("goes on");
  fail();
  fs::last_write_time(lines, fs::last_write_time(lines) + std::chrono::seconds(1));
  expect_said("other inputs or with other options");
}

TEST_F(LongImport, IsRefusedWhereAnotherProcessMakesTheOutput) {
  const std::string text = put("a.txt", odd_text(3 << 20, 8));
  ImportOptions options;
  bool tried = false;
  options.progress = [&](int64_t, int64_t) {
    if (!std::exchange(tried, true))
      expect_error(ExitCode::kOutputLocked, {"another process"},
                   [&] { import_text({text}, out_, TextLevel::kByte, {.force = true}); });
  };
  import_text({text}, out_, TextLevel::kByte, options);
  EXPECT_TRUE(tried);
  fs::remove(out_);
  fs::create_directory_symlink(folder_ / "", out_ + ".partial");
  expect_error(ExitCode::kOutputLocked, {"cannot be opened as a folder"},
               [&] { import_text({text}, out_, TextLevel::kByte, {}); });
}

}  // namespace
}  // namespace lockstep::long_import_test
