// Reading whole files and replacing them atomically.
#pragma once

#include <string>
#include <string_view>

namespace lockstep {

// Writes a temporary file in the same directory, syncs it and renames it to `path`: a reader sees either the old file
// or the new one, also after a crash. Throws ExitCode::kStorage (disk full, I/O) or kOutputLocked (not writable).
void replace_file(const std::string& path, std::string_view text);

// The second half of replace_file, for a temporary file that the caller has written.
void sync_and_rename(const std::string& temporary, const std::string& path);

// Creates the directory and those above it where they are absent. Throws like replace_file.
void make_folder(const std::string& path);

// Up to `limit` bytes from the beginning of the file; "" if there is no such file.
std::string read_head(const std::string& path, size_t limit);

// Throws the error of a failed write or create: ExitCode::kStorage for a storage error, kOutputLocked otherwise.
[[noreturn]] void fail_write(const std::string& path, int error_number);

}  // namespace lockstep
