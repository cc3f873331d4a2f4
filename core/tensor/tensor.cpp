#include "core/tensor/tensor.h"

#include <cstring>

#include "core/device/allocator.h"
#include "core/device/graph.h"
#include "core/kernels/stage.h"
#include "core/tensor/raw_ops.h"

namespace lockstep {

Storage::~Storage() { release(); }

void Storage::allocate() {
  if (!data_ && bytes_ > 0) data_ = allocate_bytes(bytes_, device_, context().memory_use);
}

void Storage::release() {
  if (!data_ || borrowed_) return;
  void* data = std::exchange(data_, nullptr);
  // Work already enqueued may still use the block. Other streams that use it hold the tensor until they are done.
  if (device_.type == DeviceType::kAsyncCpu && context().stream)
    current_stream().enqueue([data](Parallel&) { free_bytes(data); });
  else free_bytes(data, device_);
}

Tensor Tensor::empty(const Shape& shape, DType dtype) {
  Tensor t = unallocated(shape, dtype);
  t.allocate();
  return t;
}

Tensor Tensor::unallocated(const Shape& shape, DType dtype, Device device) {
  return view_of(std::make_shared<Storage>(device, bytes_of(dtype, shape.numel())), 0, shape, dtype);
}

Tensor Tensor::zeros(const Shape& shape, DType dtype) { return full(shape, 0, dtype); }

Tensor Tensor::full(const Shape& shape, double value, DType dtype) {
  Tensor t = empty(shape, dtype);
  raw::fill(t, value);
  return t;
}

template <class T>
Tensor Tensor::of(const std::vector<T>& values, const Shape& shape) {
  check(static_cast<int64_t>(values.size()) == shape.numel(), "Tensor::of: ", static_cast<int64_t>(values.size()),
        " values for shape ", shape);
  not_in_a_graph("a tensor made of the host's values");
  const Device here = current_device();
  Tensor t = unallocated(shape, dtype_of<T>(), here.type == DeviceType::kCuda ? host_memory_of(here) : here);
  t.allocate();
  if (!values.empty() && t.device().has_bytes()) memcpy(t.write(), values.data(), values.size() * sizeof(T));
  return raw::to_device(t, here);
}
template Tensor Tensor::of(const std::vector<float>&, const Shape&);
template Tensor Tensor::of(const std::vector<double>&, const Shape&);
template Tensor Tensor::of(const std::vector<int64_t>&, const Shape&);
template Tensor Tensor::of(const std::vector<int32_t>&, const Shape&);
template Tensor Tensor::of(const std::vector<uint8_t>&, const Shape&);

Tensor Tensor::view_of(std::shared_ptr<Storage> storage, int64_t offset, const Shape& shape, DType dtype) {
  Tensor t;
  check(bytes_of(dtype, offset + shape.numel()) <= storage->bytes(), "a view of ", shape, " at ", offset,
        " exceeds its ", storage->bytes(), " bytes");
  t.storage_ = std::move(storage);
  t.shape_ = shape;
  t.strides_ = contiguous_strides(shape);
  t.offset_ = offset;
  t.dtype_ = dtype;
  return t;
}

int64_t Tensor::dim(int i) const {
  const int at = i < 0 ? i + rank() : i;
  check(at >= 0 && at < rank(), "dimension ", i, " of ", *this);
  return shape_[at];
}

bool Tensor::is_contiguous() const {
  int64_t step = 1;
  for (int i = rank() - 1; i >= 0; --i) {
    if (shape_[i] != 1 && strides_[i] != step) return false;
    step *= shape_[i];
  }
  return true;
}

const void* Tensor::read() const {
  check(defined(), "reading an undefined tensor");
  check(storage_->allocated(), "reading ", *this, ", whose bytes are released or were never allocated");
  check(!is_coded(dtype_) || offset_ % kCodedBlock == 0, "reading ", *this, " within a block of codes, at ", offset_);
  return static_cast<const char*>(storage_->data()) + bytes_of(dtype_, offset_);
}

void* Tensor::write() const {
  const void* p = read();
  storage_->bump_version();
  return const_cast<void*>(p);
}

template <class T>
const T* Tensor::values() const {
  check(dtype_ == dtype_of<T>() && is_contiguous(), "values() of ", *this, " as another type, or not contiguous");
  check(device().in_host_memory(), "values() of ", *this, ", where the host cannot look: ask the device first");
  current_stream().synchronize();
  return static_cast<const T*>(read());
}
template const float* Tensor::values() const;
template const double* Tensor::values() const;
template const int64_t* Tensor::values() const;
template const int32_t* Tensor::values() const;
template const uint8_t* Tensor::values() const;

template <class T>
T* Tensor::mutable_values() const {
  const T* p = values<T>();
  storage_->bump_version();
  return const_cast<T*>(p);
}
template float* Tensor::mutable_values() const;
template double* Tensor::mutable_values() const;
template int64_t* Tensor::mutable_values() const;
template int32_t* Tensor::mutable_values() const;
template uint8_t* Tensor::mutable_values() const;

template <class T>
std::vector<T> Tensor::to_vector() const {
  Tensor dense = raw::to_host(is_coded(dtype_) ? raw::cast(detach(), DType::kFloat32) : detach());
  current_stream().synchronize();
  std::vector<T> out(static_cast<size_t>(numel()));
  if (!device().has_bytes()) return out;
  const void* p = numel() ? dense.read() : nullptr;
  for (size_t i = 0; i < out.size(); ++i) out[i] = load_element<T>(p, dense.dtype(), static_cast<int64_t>(i));
  return out;
}
template std::vector<double> Tensor::to_vector() const;
template std::vector<float> Tensor::to_vector() const;
template std::vector<int64_t> Tensor::to_vector() const;

Tensor Tensor::as_bytes() const {
  check(is_contiguous(), "the bytes of ", *this, ", which is not contiguous");
  return view_of(storage_, bytes_of(dtype_, offset_), {bytes()}, DType::kUInt8);
}

double Tensor::item() const {
  check(numel() == 1, "item() of ", *this);
  return to_vector<double>()[0];
}

Tensor Tensor::reshape(const Shape& wanted) const {
  Shape shape = wanted;
  int64_t known = 1;
  int free = -1;
  for (int i = 0; i < shape.rank(); ++i) {
    if (shape[i] == -1) {
      check(free < 0, "reshape: two extents of -1 in ", wanted);
      free = i;
    } else {
      known *= shape[i];
    }
  }
  if (free >= 0 && known > 0) shape[free] = numel() / known;
  check(shape.numel() == numel(), "reshape: ", *this, " as ", wanted);
  check(is_contiguous(), "reshape: ", *this, " is not contiguous");
  Tensor t = *this;
  t.record_.reset();
  t.shape_ = shape;
  t.strides_ = contiguous_strides(shape);
  return t;
}

Tensor Tensor::permute(const std::vector<int>& order) const {
  check(static_cast<int>(order.size()) == rank(), "permute: ", *this, " by another number of dimensions");
  Tensor t = *this;
  t.record_.reset();
  uint32_t seen = 0;
  for (int i = 0; i < rank(); ++i) {
    const int from = order[static_cast<size_t>(i)];
    check(from >= 0 && from < rank() && !(seen >> from & 1), "permute: dimension ", from, " of ", *this,
          " out of range or twice");
    seen |= 1u << from;
    t.shape_[i] = shape_[from];
    t.strides_[i] = strides_[from];
  }
  return t;
}

Tensor Tensor::transpose(int a, int b) const {
  std::vector<int> order;
  for (int i = 0; i < rank(); ++i) order.push_back(i);
  if (a < 0) a += rank();
  if (b < 0) b += rank();
  check(a >= 0 && b >= 0 && a < rank() && b < rank(), "transpose: dimensions ", a, " and ", b, " of ", *this);
  std::swap(order[static_cast<size_t>(a)], order[static_cast<size_t>(b)]);
  return permute(order);
}

Tensor Tensor::slice(int d, int64_t begin, int64_t end) const {
  if (d < 0) d += rank();
  check(d >= 0 && d < rank() && begin >= 0 && begin <= end && end <= shape_[d], "slice: [", begin, ", ", end,
        ") of dimension ", d, " of ", *this);
  Tensor t = *this;
  t.record_.reset();
  t.shape_[d] = end - begin;
  t.offset_ += begin * strides_[d];
  return t;
}

Tensor Tensor::expand(const Shape& shape) const {
  const int extra = shape.rank() - rank();
  check(extra >= 0, "expand: ", *this, " to ", shape);
  Tensor t = *this;
  t.record_.reset();
  t.shape_ = shape;
  t.strides_ = shape;
  for (int i = 0; i < shape.rank(); ++i) {
    const int64_t own = i < extra ? 1 : shape_[i - extra];
    check(own == shape[i] || own == 1, "expand: ", *this, " to ", shape);
    t.strides_[i] = own == shape[i] && i >= extra ? strides_[i - extra] : 0;
  }
  return t;
}

Tensor Tensor::as(DType dtype) const {
  check(size_of(dtype) == size_of(dtype_) && !is_coded(dtype), "as: ", *this, " as ", dtype);
  Tensor t = *this;
  t.record_.reset();
  t.dtype_ = dtype;
  return t;
}

std::string to_text(const Tensor& t) {
  if (!t.defined()) return "undefined tensor";
  return str(t.dtype(), t.shape(), " on ", t.device());
}

Shape broadcast_shapes(const Shape& a, const Shape& b, std::string_view op) {
  Shape out = a.rank() >= b.rank() ? a : b;
  for (int i = 1; i <= out.rank(); ++i) {
    const int64_t x = i <= a.rank() ? a[a.rank() - i] : 1, y = i <= b.rank() ? b[b.rank() - i] : 1;
    check(x == y || x == 1 || y == 1, op, ": shapes ", a, " and ", b, " do not broadcast");
    out[out.rank() - i] = x == 1 ? y : x;
  }
  return out;
}

}  // namespace lockstep
