// Reading whole files and replacing them atomically.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "core/base/plain_file.h"

namespace lockstep {

class WritePace;  // core/io/write_pace.h

// Writes a temporary file in the same directory, syncs it and renames it to `path`: a reader sees either the old file
// or the new one, also after a crash. Throws ExitCode::kStorage (disk full, I/O) or kOutputLocked (not writable).
void replace_file(const std::string& path, std::string_view text);

// An output that the user named. Devices, pipes and names in /dev and /proc are written into. A file, or a link, that
// is there is replaced only where `replace`, and never in part. Throws kOutputLocked, kStorage.
void write_output(const std::string& path, std::string_view text, bool replace);
void check_output(const std::string& path, bool replace);  // throws as write_output would, before there is a text

// The second half of replace_file, for a temporary file that the caller has written.
void sync_and_rename(const std::string& temporary, const std::string& path);

// Creates the directory and those above it where they are absent. Throws like replace_file.
void make_folder(const std::string& path);

// Up to `limit` bytes from the beginning of the file; "" if there is no such regular file.
std::string read_head(const std::string& path, size_t limit);

// Nothing if there is none; throws like InputFile for what is no regular file.
std::optional<InputFile> open_if_there(const std::string& path);
// Up to `most` bytes from `offset` on, also what was added since it was opened; "" at its end. Throws kBadData.
std::string read_some(const InputFile& file, int64_t offset, size_t most);
// Each line of the file, if there is one, also a last one without an end. Throws kBadData for what is no regular file
// and for a line of more than 16 MiB.
void each_line(const std::string& path, const std::function<void(const std::string&)>& use);

// Makes a new file with the content of another, flushed to disk. Throws like replace_file, and kBadData where the other
// cannot be read; what WritePace::wait does.
void copy_to_new(const InputFile& from, const std::string& to, WritePace* pace = nullptr);

// Throws the error of a failed write or create: ExitCode::kStorage for a storage error, kOutputLocked otherwise. It
// advises to choose `another`: what the user would give in place of the path.
[[noreturn]] void fail_write(const std::string& path, int error_number, const char* another = "run.dir");

}  // namespace lockstep
