// The manifest of a checkpoint as text: written, and read with everything in it checked. Plain functions, beside those
// of core/state/checkpoint.h that are about the manifest alone; included by checkpoint.cpp.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/base/error.h"
#include "core/state/checkpoint.h"

namespace lockstep {

constexpr const char* kManifest = "manifest.json";

// Sorts by name, box and offset, and counts their blocks. Throws `code` where the slices do not cover each tensor once,
// in files [0, files).
void arrange_slices(std::vector<StoredSlice>& slices, int64_t files, ExitCode code, std::string_view where);

// Writes the manifest of arranged slices into the directory `pending`, flushed to disk. Throws kStorage.
void write_manifest(const std::string& pending, const CheckpointInfo& info, const std::vector<StoredSlice>& slices,
                    int files);

// What to_hex() gave. Throws kBadData, where `where` begins the message.
Hash128 parse_hash(const std::string& hex, std::string_view where);

// What a run needs beside its tensors, as one line, and back. Throws kBadData, where `where` begins the message.
std::string info_text(const CheckpointInfo& info);
CheckpointInfo parse_info(std::string_view text, const std::string& where);

}  // namespace lockstep
