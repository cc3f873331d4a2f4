// The cells of Arrow's arrays as text. Plain functions, for columnar_table.cpp and its door.
#pragma once

#include <arrow/array.h>
#include <arrow/type.h>

#include <cstdint>
#include <string>

namespace lockstep {

// Whether cells are made of a type: see open_columnar().
bool has_cells(const arrow::DataType& type);
// Whether these are numbers.
bool has_numbers(const arrow::DataType& type);
// The text of element i; empty for null.
std::string cell_text(const arrow::Array& values, int64_t i);

}  // namespace lockstep
