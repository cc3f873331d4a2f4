// main() of the test programs: `core_tests ops_test stream_test` runs the tests of ops_test.cpp and stream_test.cpp;
// GoogleTest's options come on top. ctest runs each file in a process of its own, for some tests change or count what a
// whole process shares.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace {

// "ops_test" of ".../tests/core/ops/ops_test.cpp".
std::string stem_of(std::string_view path) {
  path.remove_prefix(path.rfind('/') + 1);
  return std::string(path.substr(0, path.find('.')));
}

// The names of all tests by the source file that defines them. Each suite and each test belongs to one file, for
// GoogleTest chooses by name.
std::map<std::string, std::vector<std::string>> tests_by_file() {
  std::map<std::string, std::vector<std::string>> out;
  std::map<std::string, std::string> files;
  const testing::UnitTest& all = *testing::UnitTest::GetInstance();
  for (int s = 0; s < all.total_test_suite_count(); ++s) {
    const testing::TestSuite& suite = *all.GetTestSuite(s);
    for (int t = 0; t < suite.total_test_count(); ++t) {
      const testing::TestInfo& test = *suite.GetTestInfo(t);
      const std::string name = std::string(suite.name()) + "." + test.name(), file = stem_of(test.file());
      const auto [first, is_new] = files.emplace(name, file);
      if (!is_new) {
        std::fprintf(stderr, "%s is defined twice, in %s.cpp and %s.cpp: rename one\n", name.c_str(),
                     first->second.c_str(), file.c_str());
        std::exit(2);
      }
      out[file].push_back(name);
    }
  }
  return out;
}

}  // namespace

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  const auto files = tests_by_file();
  const std::set<std::string> chosen(argv + 1, argv + argc);
  const bool known =
      std::all_of(chosen.begin(), chosen.end(), [&](const std::string& stem) { return files.count(stem); });
  if (testing::GTEST_FLAG(list_tests)) return RUN_ALL_TESTS();
  if (chosen.empty() || !known) {
    std::fprintf(stderr, "usage: %s FILE... [--gtest_filter=PATTERN ...]; the files, and how many tests each has:\n",
                 argv[0]);
    for (const auto& [stem, names] : files) std::fprintf(stderr, "  %s %zu\n", stem.c_str(), names.size());
    return 2;
  }
  // By name, which GoogleTest prints; beside a --gtest_filter, which still chooses among them, by excluding all others.
  std::string filter = testing::GTEST_FLAG(filter);
  const bool all = filter == "*";
  if (all) filter.clear();
  std::string separator = all ? "" : filter.find('-') == std::string::npos ? "-" : ":";
  for (const auto& [stem, names] : files) {
    if ((chosen.count(stem) > 0) != all) continue;
    for (const std::string& name : names) {
      filter += separator + name;
      separator = ":";
    }
  }
  testing::GTEST_FLAG(filter) = filter;
  return RUN_ALL_TESTS();
}
