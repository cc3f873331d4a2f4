// Whole files: read, and replaced atomically.
// Plain functions.
#pragma once

#include <string>
#include <string_view>

namespace lockstep {

// Writes a temporary neighbour, syncs it and renames it over `path`: a reader sees the old file or the new one, and a
// crash leaves one of the two. Throws ExitCode::kStorage (disk full, I/O) or kOutputLocked (not writable).
void replace_file(const std::string& path, std::string_view text);

// The second half of replace_file, for a temporary file that somebody else wrote.
void sync_and_rename(const std::string& temporary, const std::string& path);

// Up to `limit` bytes from the beginning; "" where there is no such file.
std::string read_head(const std::string& path, size_t limit);

// A full disk or the like, not a place that cannot be written.
bool is_storage_error(int error_number);
// ExitCode of a failed write or create: a full disk is kStorage, a place that cannot be written is kOutputLocked.
[[noreturn]] void fail_write(const std::string& path, int error_number);

}  // namespace lockstep
