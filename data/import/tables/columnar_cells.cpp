#include "data/import/tables/columnar_cells.h"

#include <arrow/array/array_dict.h>
#include <arrow/array/array_primitive.h>
#include <arrow/type_traits.h>
#include <arrow/util/decimal.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <string_view>
#include <system_error>

#include "core/base/error.h"

namespace lockstep {
namespace {

// As Python's repr: the shortest digits that give the number back, with a point or an exponent.
template <class Float>
std::string float_text(Float value) {
  if (std::isnan(value)) return "";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char text[64];
  const auto made = std::to_chars(text, text + sizeof text, value, std::chars_format::scientific);
  const std::string_view scientific(text, static_cast<size_t>(made.ptr - text));
  const size_t e = scientific.find('e');
  int exponent = 0;
  std::from_chars(text + e + (text[e + 1] == '+' ? 2 : 1), made.ptr, exponent);
  if (exponent < -4 || exponent >= 16) return std::string(scientific);
  const bool negative = text[0] == '-';
  std::string digits(scientific.substr(negative, e - negative));
  std::erase(digits, '.');
  const auto before = static_cast<size_t>(std::max(exponent, 0)) + 1;  // the point
  if (exponent < 0) digits.insert(0, static_cast<size_t>(-exponent), '0');
  if (digits.size() <= before) digits.append(before + 1 - digits.size(), '0');
  return (negative ? "-" : "") + digits.insert(before, 1, '.');
}

template <class Array>
const Array& as(const arrow::Array& values) {
  return static_cast<const Array&>(values);
}

}  // namespace

bool has_cells(const arrow::DataType& type) {
  switch (type.id()) {
    case arrow::Type::NA:
    case arrow::Type::BOOL:
    case arrow::Type::INT8:
    case arrow::Type::INT16:
    case arrow::Type::INT32:
    case arrow::Type::INT64:
    case arrow::Type::UINT8:
    case arrow::Type::UINT16:
    case arrow::Type::UINT32:
    case arrow::Type::UINT64:
    case arrow::Type::FLOAT:
    case arrow::Type::DOUBLE:
    case arrow::Type::DECIMAL128:
    case arrow::Type::DECIMAL256:
    case arrow::Type::STRING:
    case arrow::Type::LARGE_STRING:
    case arrow::Type::STRING_VIEW: return true;
    case arrow::Type::DICTIONARY: {
      const arrow::DataType& of = *static_cast<const arrow::DictionaryType&>(type).value_type();
      return of.id() != arrow::Type::DICTIONARY && has_cells(of);
    }
    default: return false;
  }
}

bool has_numbers(const arrow::DataType& type) {
  if (type.id() == arrow::Type::DICTIONARY)
    return has_numbers(*static_cast<const arrow::DictionaryType&>(type).value_type());
  return arrow::is_numeric(type.id()) || arrow::is_decimal(type.id());
}

std::string cell_text(const arrow::Array& values, int64_t i) {
  if (values.IsNull(i)) return "";
  switch (values.type_id()) {
    case arrow::Type::NA: return "";
    case arrow::Type::BOOL: return as<arrow::BooleanArray>(values).Value(i) ? "True" : "False";
    case arrow::Type::INT8: return std::to_string(as<arrow::Int8Array>(values).Value(i));
    case arrow::Type::INT16: return std::to_string(as<arrow::Int16Array>(values).Value(i));
    case arrow::Type::INT32: return std::to_string(as<arrow::Int32Array>(values).Value(i));
    case arrow::Type::INT64: return std::to_string(as<arrow::Int64Array>(values).Value(i));
    case arrow::Type::UINT8: return std::to_string(as<arrow::UInt8Array>(values).Value(i));
    case arrow::Type::UINT16: return std::to_string(as<arrow::UInt16Array>(values).Value(i));
    case arrow::Type::UINT32: return std::to_string(as<arrow::UInt32Array>(values).Value(i));
    case arrow::Type::UINT64: return std::to_string(as<arrow::UInt64Array>(values).Value(i));
    case arrow::Type::FLOAT: return float_text(as<arrow::FloatArray>(values).Value(i));
    case arrow::Type::DOUBLE: return float_text(as<arrow::DoubleArray>(values).Value(i));
    case arrow::Type::DECIMAL128: return as<arrow::Decimal128Array>(values).FormatValue(i);
    case arrow::Type::DECIMAL256: return as<arrow::Decimal256Array>(values).FormatValue(i);
    case arrow::Type::STRING: return as<arrow::StringArray>(values).GetString(i);
    case arrow::Type::LARGE_STRING: return as<arrow::LargeStringArray>(values).GetString(i);
    case arrow::Type::STRING_VIEW: return as<arrow::StringViewArray>(values).GetString(i);
    case arrow::Type::DICTIONARY: {
      const auto& coded = as<arrow::DictionaryArray>(values);
      return cell_text(*coded.dictionary(), coded.GetValueIndex(i));
    }
    default: break;
  }
  check(false, "a column whose type has no cells");
  return "";
}

}  // namespace lockstep
