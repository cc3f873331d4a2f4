// each_device: the same work on every kind of stream: inline and asynchronous, with one compute thread and with
// several, and in the queue of the fake GPU. Plain functions; each run owns its stream.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/device/context.h"
#include "tests/support/fake_gpu.h"

namespace lockstep::testing {

using Values = std::vector<std::vector<double>>;  // of several tensors; every type but int64 fits exactly

inline Values on_stream(Device device, int threads, const std::function<Values()>& work) {
  const bool async = device.type == DeviceType::kAsyncCpu;
  Stream stream(device, async ? Stream::Mode::kThread : Stream::Mode::kInline, threads);
  WithStream with(stream);
  Values values = work();
  stream.synchronize();
  return values;
}

inline void expect_equal_bits(const Values& a, const Values& b, const std::string& what) {
  ASSERT_EQ(a.size(), b.size()) << what;
  for (size_t t = 0; t < a.size(); ++t) {
    ASSERT_EQ(a[t].size(), b[t].size()) << what << ", tensor " << t;
    for (size_t i = 0; i < a[t].size(); ++i)
      ASSERT_EQ(memcmp(&a[t][i], &b[t][i], sizeof(double)), 0)
          << what << ", tensor " << t << ", element " << i << ": " << a[t][i] << " and " << b[t][i];
  }
}

// Fails the running test where 2, 3 or 5 threads, the asynchronous device, or the fake GPU change a bit of one inline
// thread's results.
inline void same_on_each_device(const std::function<Values()>& work) {
  const Values expected = on_stream(Device{}, 1, work);
  for (int threads : {2, 3, 5})
    expect_equal_bits(expected, on_stream(Device{}, threads, work), str(threads, " threads"));
  for (int threads : {1, 3})
    expect_equal_bits(expected, on_stream(Device{DeviceType::kAsyncCpu}, threads, work),
                      str("async device, ", threads, " threads"));
  expect_equal_bits(expected, on_stream(fake_gpu(), 1, work), "fake GPU");
}

}  // namespace lockstep::testing
