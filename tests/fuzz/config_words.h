// What the targets of configurations share: pieces of YAML and our keys, and what holds for every accepted one.
#pragma once

#include <string_view>
#include <vector>

#include "launch/config/settings.h"
#include "tests/fuzz/fuzz.h"

namespace lockstep::fuzz {

inline const std::vector<std::string_view>& config_words() {
  using namespace std::string_view_literals;
  static const std::vector<std::string_view> words = [] {
    std::vector<std::string_view> out = {"[",
                                         "]",
                                         "{",
                                         "}",
                                         ":",
                                         ": ",
                                         "- ",
                                         "? ",
                                         "&a ",
                                         "*a",
                                         "*r",
                                         "!!",
                                         "!t ",
                                         "|",
                                         ">",
                                         "'",
                                         "\"",
                                         "#",
                                         " #",
                                         "\n",
                                         "\n  ",
                                         "\t",
                                         "---\n",
                                         "...\n",
                                         ",",
                                         "~",
                                         "null",
                                         "<<: ",
                                         "0x10",
                                         "1e999",
                                         "-1",
                                         "0",
                                         "1",
                                         "2147483647",
                                         "1e38",
                                         "1e-320",
                                         ".inf",
                                         "-.inf",
                                         ".nan",
                                         "true",
                                         "false",
                                         "\0"sv,
                                         "\x04",
                                         "\xff",
                                         "\xc3\xa4",
                                         "\\",
                                         "\\x",
                                         "\\u12",
                                         "@",
                                         "`",
                                         "=",
                                         "\r",
                                         "\r\n",
                                         "9223372036854775807",
                                         "sgd",
                                         "adamw",
                                         "gpt",
                                         "llama",
                                         "llama3",
                                         "mlp",
                                         "convnet",
                                         "linear",
                                         "step",
                                         "constant",
                                         "cosine",
                                         "bf16",
                                         "fp16",
                                         "fp32",
                                         "block",
                                         "attention",
                                         "optimizer",
                                         "gradients",
                                         "parameters",
                                         "none",
                                         "cpu",
                                         "cuda",
                                         "auto",
                                         "fast",
                                         "exact",
                                         "synthetic_tokens",
                                         "synthetic_images",
                                         "hdf5",
                                         "%YAML 1.2\n",
                                         "\xef\xbb\xbf",
                                         ".0.decay=0",
                                         "=[1, 2]"};
    static const App app = builtin();
    static const std::vector<ConfigKey> keys = all_keys(app);
    static std::vector<std::string> parts;
    for (const ConfigKey& k : keys) {
      parts.push_back(k.key);
      parts.push_back(k.key.substr(k.key.rfind('.') + 1) + ": ");
      parts.push_back(k.key + "=");
    }
    out.insert(out.end(), parts.begin(), parts.end());
    return out;
  }();
  return words;
}

// What is written down of an accepted configuration is accepted, too, and means the same.
inline void expect_same_when_read_again(const App& app, const Settings& settings, int ranks) {
  const std::string dumped = settings.config.dump_yaml();
  std::unique_ptr<Settings> again;
  is_accepted({}, [&] { again = load_settings(app, ConfigTree::parse(dumped, "dump.yaml"), ranks); });
  expect(again->config.text() == settings.config.text(), "read again, the configuration differs:\n", dumped);
  expect(again->config.math_text() == settings.config.math_text(), "read again, its mathematics differs:\n", dumped);
}

// A refusal says where: a line of `file`, an override, or the default of a key.
inline void expect_place(const std::string& message, const std::string& file) {
  const bool named =
      message.starts_with(file + ":") || message.starts_with("override ") || message.find(" (default)") != message.npos;
  expect(named, "no place is named: ", message);
}

}  // namespace lockstep::fuzz
