// What the targets of manifests share: the manifest's closing hash, and what holds for every checkpoint that opens.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "core/base/hash.h"
#include "core/state/checkpoint.h"
#include "tests/fuzz/fuzz.h"

namespace lockstep::fuzz {

// The text with the hash that it should have in place of the one it has, if any.
inline std::string with_hash(std::string_view manifest) {
  const std::string_view body = manifest.substr(0, std::min(manifest.rfind("{\"hash\""), manifest.size()));
  return cat(body, "{\"hash\":\"", to_hex(hash128(body)), "\"}\n");
}

// Opens a directory that holds this manifest and nothing else.
inline void open_manifest(std::string_view manifest) {
  static const std::string dir = [] {
    std::string made = scratch("checkpoint");
    std::filesystem::create_directories(made);
    return made;
  }();
  write_file(dir + "/manifest.json", manifest);
  Checkpoint c;
  if (!is_accepted({ExitCode::kBadData}, [&] { c = open_checkpoint(dir); })) return;
  expect(c.info.step >= 0 && c.info.ranks >= 1 && c.info.position >= 0, "an impossible number was accepted");
  int64_t end = 0;
  for (size_t i = 0; i < c.slices.size(); ++i) {
    const StoredSlice& s = c.slices[i];
    if (i == 0 || c.slices[i - 1].name != s.name) end = 0;
    expect(s.count >= 0 && s.offset == end && s.part >= 0 && s.part < c.files, "slices do not follow each other");
    end += s.count;
    const bool last = i + 1 == c.slices.size() || c.slices[i + 1].name != s.name;
    expect(!last || end == s.shape.numel(), "slices do not cover their tensor");
  }
  digest_of(c);
  // No part is there, so only empty tensors can be whole.
  is_accepted({ExitCode::kBadData}, [&] { verify_checkpoint(c); });
}

}  // namespace lockstep::fuzz
