// The confusion matrix of an evaluation as files: CSV, or a PNG picture. Plain functions.
#pragma once

#include <string>
#include <vector>

#include "core/metrics/metric.h"
#include "data/images/resize.h"

namespace lockstep {

// Whether a file of this name is a picture: it ends in .png. Throws ExitCode::kDevice where it is one and this build
// cannot write PNG files.
bool is_confusion_picture(const std::string& path);

// One square a cell, a row for each label from the top, a column for each class from the left; white is no prediction
// of the row, the darkest blue all of them. Rows of labels that do not occur are grey. Squares have 24 pixels a side,
// fewer where the whole would have more than 1200; a grey line is between those of 8 pixels or more. Throws
// ExitCode::kConfig for more than kMostPictured classes or labels.
constexpr int64_t kMostPictured = 4096;
ByteImage confusion_picture(const Confusion& confusion);
// What rows and columns are, with the names of the classes where there are any and they are few enough to read.
std::string confusion_legend(const Confusion& confusion, const std::vector<std::string>& class_names);

// Writes the file, a picture or a table with the names of the classes where there are any; throws ExitCode::kConfig
// where nothing was counted; else throws as write_output does (core/io/files.h).
void write_confusion(const std::string& path, const Confusion& confusion, const std::vector<std::string>& class_names,
                     bool replace);

}  // namespace lockstep
