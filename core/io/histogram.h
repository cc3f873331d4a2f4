// Histogram: how many values lie in each of fixed buckets, two for each power of two, of either sign. Since buckets do
// not depend on the values, those of parts of a tensor are added up, and their sum does not depend on the parts.
// A plain value.
#pragma once

#include <cstdint>
#include <map>
#include <utility>

namespace lockstep {

class Histogram {
 public:
  // The bucket of a finite value; buckets are in the order of their values. 0 and -0 are in bucket 0.
  static int bucket_of(float value);
  static std::pair<double, double> edges(int bucket);  // the lower one and the upper one

  void add(const float* values, int64_t n);  // those that are not finite are left out
  void add(int bucket, int64_t count) { counts_[bucket] += count; }
  void add(const Histogram& other);

  bool empty() const { return counts_.empty(); }
  int64_t count() const;
  const std::map<int, int64_t>& counts() const { return counts_; }  // of buckets that are not empty

 private:
  std::map<int, int64_t> counts_;
};

}  // namespace lockstep
