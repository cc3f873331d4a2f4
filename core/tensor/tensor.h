// Tensor: a typed, strided view of a storage; a cheap value. It may have a shape and no bytes.
// Shares its Storage; the autograd record, if any, is opaque here (core/autograd).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/base/dtype.h"
#include "core/base/error.h"
#include "core/base/partition.h"
#include "core/base/shape.h"
#include "core/device/context.h"
#include "core/tensor/storage.h"

namespace lockstep {

struct AutogradRecord;

class Tensor {
 public:
  Tensor() = default;  // undefined

  // Contents undefined. On the current device.
  static Tensor empty(const Shape& shape, DType dtype = DType::kFloat32);
  // A shape without bytes: allocate() or the owner of a flat buffer brings them.
  static Tensor unallocated(const Shape& shape, DType dtype = DType::kFloat32, Device device = current_device());
  static Tensor zeros(const Shape& shape, DType dtype = DType::kFloat32);
  static Tensor full(const Shape& shape, double value, DType dtype = DType::kFloat32);
  // Copies host values; T must be the dtype's C++ type (float, double, int64_t, int32_t, uint8_t).
  template <class T>
  static Tensor of(const std::vector<T>& values, const Shape& shape);
  // A view of `storage` from element `offset`.
  static Tensor view_of(std::shared_ptr<Storage> storage, int64_t offset, const Shape& shape, DType dtype);

  bool defined() const { return storage_ != nullptr; }
  explicit operator bool() const { return defined(); }
  const Shape& shape() const { return shape_; }
  const Shape& strides() const { return strides_; }
  int rank() const { return shape_.rank(); }
  int64_t dim(int i) const;  // negative counts from the end
  int64_t numel() const { return shape_.numel(); }
  DType dtype() const { return dtype_; }
  const Device& device() const { return storage_->device(); }
  int64_t offset() const { return offset_; }  // elements
  int64_t bytes() const { return bytes_of(dtype_, numel()); }
  // The bytes themselves, uint8 [bytes()], of a contiguous tensor.
  Tensor as_bytes() const;
  bool is_contiguous() const;
  bool allocated() const { return storage_ && storage_->allocated(); }
  void allocate() { storage_->allocate(); }
  const std::shared_ptr<Storage>& storage() const { return storage_; }
  // Whether exactly `handles` tensors, all known to the caller, share the storage: then its bytes may be overwritten.
  bool unshared(int64_t handles = 1) const { return storage_ && storage_.use_count() == handles; }
  bool same_place(const Tensor& o) const { return storage_ == o.storage_ && offset_ == o.offset_; }

  // Address of the first element, for reading; throws kInternal if there are no bytes.
  const void* read() const;
  // Address of the first element, for writing; counts as a write of the whole storage.
  void* write() const;
  // Typed access to the host memory of a contiguous tensor, after synchronising the current stream; throws for memory
  // that the host cannot access (copy it with raw::to_host). to_vector() and item() copy from any device; on a meta
  // device they return zeros.
  template <class T>
  const T* values() const;
  template <class T>
  T* mutable_values() const;
  template <class T = double>
  std::vector<T> to_vector() const;
  // The one value of a tensor of one element; synchronises the current stream.
  double item() const;

  // Views: no bytes are copied, and none need be allocated.
  Tensor reshape(const Shape& shape) const;  // contiguous tensors only; one extent may be -1
  Tensor flatten() const { return reshape({numel()}); }
  Tensor permute(const std::vector<int>& order) const;
  Tensor transpose(int a, int b) const;
  Tensor slice(int dim, int64_t begin, int64_t end) const;
  Tensor expand(const Shape& shape) const;  // extents of 1 repeat; leading ones may be added
  Tensor as(DType dtype) const;             // reinterprets the bytes; equal element size

  // Element i of the first dimension, which the result lacks, and elements [begin, end) of it: t[i], t[{begin, end}].
  // Differentiable views (core/ops/ops.h).
  Tensor operator[](int64_t i) const;
  Tensor operator[](IndexRange range) const;

  // Autograd's record; null for a plain value.
  const std::shared_ptr<AutogradRecord>& record() const { return record_; }
  void set_record(std::shared_ptr<AutogradRecord> record) { record_ = std::move(record); }
  Tensor detach() const {
    Tensor t = *this;
    t.record_.reset();
    return t;
  }

 private:
  std::shared_ptr<Storage> storage_;
  std::shared_ptr<AutogradRecord> record_;
  Shape shape_, strides_;
  int64_t offset_ = 0;
  DType dtype_ = DType::kFloat32;
};

// "fp32[2, 3] on cpu"
std::string to_text(const Tensor& t);

Shape broadcast_shapes(const Shape& a, const Shape& b, std::string_view op);

}  // namespace lockstep
