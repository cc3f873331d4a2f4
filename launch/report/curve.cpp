#include "launch/report/curve.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <utility>

#include "core/base/error.h"

namespace lockstep {
namespace {

template <class T, class Text>
std::string list_text(const std::vector<T>& values, Text text) {
  std::string out = "[";
  for (const T& v : values) {
    if (out.size() > 1) out += ',';
    out += text(v);
  }
  return out + "]";
}

// Values in classes that are a percent wide, in order: negative ones, 0, positive ones.
const double kClass = std::log(1.01);
constexpr int kZero = 100'000;  // above the class of the smallest double's reciprocal
int size_of_value(double v) {
  return v == 0 ? 0 : (v > 0 ? 1 : -1) * (static_cast<int>(std::floor(std::log(std::abs(v)) / kClass)) + kZero);
}
double value_of_size(int size) {
  return size == 0 ? 0 : (size > 0 ? 1 : -1) * std::exp((std::abs(size) - kZero + 0.5) * kClass);
}

}  // namespace

std::string short_json_number(double value) {
  if (!std::isfinite(value)) return "null";
  char text[32];
  const auto end = std::to_chars(text, text + sizeof text, value, std::chars_format::general, 5).ptr;
  return {text, end};
}

void Curve::Group::take(const Point& point) {
  if (!std::isfinite(point.value)) {
    nonfinite = point.step;
    return;
  }
  if (!has_values || point.value < least.value) least = point;
  if (!has_values || point.value > greatest.value) greatest = point;
  has_values = true;
}

void Curve::Group::take(const Group& next) {
  if (next.nonfinite >= 0) nonfinite = next.nonfinite;
  if (!next.has_values) return;
  take(next.least);
  take(next.greatest);
}

void Curve::add(int64_t step, double value) {
  if (groups_.empty() || in_group_ == width_) {
    if (groups_.size() == most_) halve();
    if (groups_.empty() || in_group_ == width_) {
      groups_.emplace_back();
      in_group_ = 0;
    }
  }
  groups_.back().take(Point{step, value});
  ++in_group_;
  ++count_;
  last_ = {step, value};
  if (std::isfinite(value)) ++sizes_[size_of_value(value)];
}

double Curve::median() const {
  int64_t all = 0, before = 0;
  for (auto& [_, n] : sizes_) all += n;
  for (auto& [size, n] : sizes_)
    if ((before += n) > all / 2) return value_of_size(size);
  return std::numeric_limits<double>::quiet_NaN();
}

void Curve::halve() {
  std::vector<Group> kept;
  kept.reserve(groups_.size());
  for (size_t i = 0; i < groups_.size(); ++i) {
    if (i % 2 == 0) kept.push_back(groups_[i]);
    else kept.back().take(groups_[i]);
  }
  const bool odd = groups_.size() % 2 == 1;
  groups_ = std::move(kept);
  in_group_ = odd ? width_ : 2 * width_;  // every group was full
  width_ *= 2;
}

std::vector<Curve::Point> Curve::points() const {
  std::vector<Point> out;
  for (const Group& g : groups_) {
    const size_t begin = out.size();
    if (g.has_values) {
      out.push_back(g.least);
      if (g.greatest.step != g.least.step) out.push_back(g.greatest);
    }
    if (g.nonfinite >= 0) out.push_back({g.nonfinite, std::numeric_limits<double>::quiet_NaN()});
    std::sort(out.begin() + static_cast<std::ptrdiff_t>(begin), out.end(),
              [](const Point& a, const Point& b) { return a.step < b.step; });
  }
  // Where the curve ends is what people read off first.
  if (!out.empty() && std::isfinite(last_.value) && out.back().step != last_.step) out.push_back(last_);
  return out;
}

std::string Curve::json() const {
  const std::vector<Point> all = points();
  int64_t before = 0;
  const std::string steps =
      list_text(all, [&](const Point& p) { return std::to_string(p.step - std::exchange(before, p.step)); });
  return str("{\"n\":", count_, ",\"m\":", short_json_number(median()), ",\"s\":", steps,
             ",\"v\":", list_text(all, [](const Point& p) { return short_json_number(p.value); }), "}");
}

void RankTimes::add(int64_t step, const std::vector<double>& ms) {
  if (columns_.empty() || columns_.back().steps >= width_ || columns_.back().sum.size() != ms.size()) {
    if (columns_.size() >= most_) halve();
    if (columns_.empty() || columns_.back().steps >= width_ || columns_.back().sum.size() != ms.size())
      columns_.push_back({step, 0, std::vector<double>(ms.size())});
  }
  Column& c = columns_.back();
  for (size_t i = 0; i < ms.size(); ++i) c.sum[i] += ms[i];
  ++c.steps;
}

void RankTimes::halve() {
  std::vector<Column> kept;
  for (Column& c : columns_) {
    if (!kept.empty() && kept.back().steps + c.steps <= 2 * width_ && kept.back().sum.size() == c.sum.size()) {
      for (size_t i = 0; i < c.sum.size(); ++i) kept.back().sum[i] += c.sum[i];
      kept.back().steps += c.steps;
    } else {
      kept.push_back(std::move(c));
    }
  }
  width_ *= 2;
  // A run whose number of ranks changes all the time: its first part goes.
  if (kept.size() >= most_) kept.erase(kept.begin(), kept.begin() + static_cast<std::ptrdiff_t>(most_ / 2));
  columns_ = std::move(kept);
}

std::string RankTimes::json() const {
  return str("{\"s\":", list_text(columns_, [](const Column& c) { return std::to_string(c.step); }), ",\"mean\":",
             list_text(columns_,
                       [](const Column& c) {
                         return list_text(
                             c.sum, [&](double s) { return short_json_number(s / static_cast<double>(c.steps)); });
                       }),
             "}");
}

std::optional<RankTimes::Straggler> RankTimes::straggler() const {
  if (columns_.empty()) return std::nullopt;
  const size_t ranks = columns_.back().sum.size();
  if (ranks < 2) return std::nullopt;
  std::vector<double> slower(ranks), sums(ranks);
  double counted = 0;
  for (const Column& c : columns_) {
    if (c.sum.size() != ranks) continue;
    const auto weight = static_cast<double>(c.steps);
    // Of two ranks the lower one is what is usual.
    std::vector<double> others = c.sum;
    std::sort(others.begin(), others.end());
    const double usual = others[(ranks - 1) / 2];
    for (size_t i = 0; i < ranks; ++i) {
      sums[i] += c.sum[i];
      if (c.sum[i] > 1.1 * usual) slower[i] += weight;
    }
    counted += weight;
  }
  std::vector<double> sorted = sums;
  std::sort(sorted.begin(), sorted.end());
  const double usual = sorted[(ranks - 1) / 2];
  const size_t worst = static_cast<size_t>(std::max_element(sums.begin(), sums.end()) - sums.begin());
  if (usual <= 0 || sums[worst] < 1.1 * usual || slower[worst] < 0.5 * counted) return std::nullopt;
  return Straggler{static_cast<int>(worst), sums[worst] / usual};
}

}  // namespace lockstep
