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
  return str(body, "{\"hash\":\"", to_hex(hash128(body)), "\"}\n");
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
  int64_t end = 0, held = 0;  // of a region, of the tensor
  bool in_boxes = false;
  for (size_t i = 0; i < c.slices.size(); ++i) {
    const StoredSlice& s = c.slices[i];
    const bool first = i == 0 || c.slices[i - 1].name != s.name;
    if (first) held = 0;
    if (first || !(c.slices[i - 1].region == s.region)) end = 0;
    expect(s.count >= 0 && s.offset == end && s.part >= 0 && s.part < c.files, "slices do not follow each other");
    expect(is_box_of(s.region.shape, s.region.begin, s.region.extent), "a box is not within its tensor");
    end += s.count;
    held += s.count;
    in_boxes = in_boxes || !s.region.is_whole();
    const bool last = i + 1 == c.slices.size() || c.slices[i + 1].name != s.name;
    expect(!last || held == s.region.shape.numel(), "slices do not cover their tensor");
  }
  if (!in_boxes) digest_of(c);
  else is_accepted({ExitCode::kBadData}, [&] { digest_of(c); });  // reads what is not there
  // No part is there, so only empty tensors can be whole.
  is_accepted({ExitCode::kBadData}, [&] { verify_checkpoint(c); });
}

}  // namespace lockstep::fuzz
