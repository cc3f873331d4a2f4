// What reports and `lockstep data show` say of text. Plain functions, for data/samples/kinds/text.cpp.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "data/samples/sample_kind.h"
#include "data/samples/show.h"

namespace lockstep {

void inspect_text(const DatasetFile& file, DatasetReport& report, const ProgressCallback& progress);
std::string text_lines(const DatasetReport& report);
JsonObject text_json(const DatasetReport& report);
ShownText show_text(const std::shared_ptr<const DatasetFile>& file, int64_t index);
ShownSample printed_text(const ShownText& shown);

}  // namespace lockstep
