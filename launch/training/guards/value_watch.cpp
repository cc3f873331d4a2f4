#include "launch/training/guards/value_watch.h"

#include <algorithm>
#include <cmath>
#include <sstream>

#include "core/base/log.h"
#include "core/base/name_pattern.h"
#include "core/base/text_table.h"
#include "core/tensor/raw_ops.h"

namespace lockstep {
namespace {

// What follows the name in the keys of sums.
constexpr const char *kGradient = "/grad", *kUpdate = "/update", *kWeight = "/weight";

std::vector<float> host_values(const Tensor& t) {
  return raw::cast(raw::contiguous(t.detach()), DType::kFloat32).to_vector<float>();
}

void all_modules(Module& m, std::vector<Module*>& out) {
  out.push_back(&m);
  for (auto& [_, child] : m.children()) all_modules(*child, out);
}

}  // namespace

void ValueWatch::Sums::add(const float* values, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    const double v = values[i];
    if (!std::isfinite(v)) {
      ++nonfinite;
      continue;
    }
    sum += v;
    squares += v * v;
    largest = std::max(largest, std::abs(v));
    zeros += v == 0 ? 1 : 0;
  }
  count += static_cast<double>(n);
}

void ValueWatch::Sums::add(const Sums& o) {
  count += o.count;
  sum += o.sum;
  squares += o.squares;
  largest = std::max(largest, o.largest);
  zeros += o.zeros;
  nonfinite += o.nonfinite;
}

ValueWatch::ValueWatch(const std::vector<std::string>& patterns, int64_t every, Module& model, Communicator& comm,
                       bool counts)
    : every_(every), comm_(comm), counts_(counts) {
  std::vector<Module*> all;
  all_modules(model, all);
  for (const std::string& pattern : patterns) {
    bool found = false;
    for (Module* m : all)
      if (!m->name().empty() && !m->is_list() && matches(pattern, m->name())) {
        found = true;
        if (std::find(modules_.begin(), modules_.end(), m) == modules_.end()) modules_.push_back(m);
      }
    for (const NamedParameter& p : model.parameters())
      if (matches(pattern, p.name)) {
        found = true;
        parameters_.insert(p.name);
      }
    require(found, ExitCode::kConfig, "'", pattern, "' matches no module and no parameter; the model has ",
            all.size() > 1 ? all[1]->name() : "none", " and ",
            model.parameters().empty() ? "no parameter" : model.parameters()[0].name, ", among others");
  }
}

void ValueWatch::add(const std::string& name, int64_t part, const std::vector<float>& values) {
  const auto n = static_cast<int64_t>(values.size());
  sums_[{name, part}].add(values.data(), n);
  histograms_[name].add(values.data(), n);
}

void ValueWatch::begin_passes() {
  sums_.clear();
  histograms_.clear();
  before_.clear();
  for (Module* m : modules_)
    m->set_observer([this, m](const Tensor& result) {
      if (!result.defined() || !is_floating(result.dtype())) return;
      add(m->name(), micro_, host_values(result));
    });
}

void ValueWatch::end_passes() {
  for (Module* m : modules_) m->set_observer({});
}

void ValueWatch::before_update(const std::vector<Slot>& slots) {
  if (!counts_) return;
  for (const Slot& s : slots) {
    if (s.master.numel() == 0 || parameters_.count(s.name) == 0) continue;
    add(s.name + kGradient, s.offset, host_values(s.gradient));
    before_[str(s.name, "@", s.offset)] = host_values(s.master);
  }
}

void ValueWatch::after_update(const std::vector<Slot>& slots) {
  for (const Slot& s : slots) {
    const auto before = before_.find(str(s.name, "@", s.offset));
    if (before == before_.end()) continue;
    std::vector<float> now = host_values(s.master);
    add(s.name + kWeight, s.offset, now);
    for (size_t i = 0; i < now.size(); ++i) now[i] -= before->second[i];
    add(s.name + kUpdate, s.offset, now);
  }
  before_.clear();
}

ValueWatch::Seen ValueWatch::finish(int64_t step) {
  std::ostringstream mine;  // one line a sum and one a histogram; names have no spaces, or they would be no keys
  mine.precision(17);
  for (const auto& [key, s] : sums_)
    mine << "sum " << key.first << ' ' << key.second << ' ' << s.count << ' ' << s.sum << ' ' << s.squares << ' '
         << s.largest << ' ' << s.zeros << ' ' << s.nonfinite << '\n';
  for (const auto& [name, histogram] : histograms_) {
    mine << "histogram " << name;
    for (const auto& [bucket, count] : histogram.counts()) mine << ' ' << bucket << ' ' << count;
    mine << '\n';
  }
  sums_.clear();
  histograms_.clear();
  const std::vector<std::string> texts = all_gather_text(comm_, mine.str(), "watched values");
  if (comm_.rank() != 0) return {};
  std::map<Key, Sums> all;
  std::map<std::string, Histogram> histograms;
  for (const std::string& text : texts) {
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
      std::istringstream in(line);
      std::string kind, name;
      in >> kind >> name;
      if (kind == "sum") {
        int64_t part = 0;
        Sums s;
        in >> part >> s.count >> s.sum >> s.squares >> s.largest >> s.zeros >> s.nonfinite;
        all[{name, part}].add(s);
        continue;
      }
      int bucket = 0;
      for (int64_t count = 0; in >> bucket >> count;) histograms[name].add(bucket, count);
    }
  }
  return seen_in(all, histograms, step);
}

ValueWatch::Seen ValueWatch::seen_in(const std::map<Key, Sums>& all, const std::map<std::string, Histogram>& histograms,
                                     int64_t step) {
  std::map<std::string, Sums> by_name;
  for (const auto& [key, s] : all) by_name[key.first].add(s);  // in the order of micro-batches and elements
  Seen out;
  const auto rms = [](const Sums& s) { return std::sqrt(s.squares / std::max(1.0, s.count - s.nonfinite)); };
  const auto warn = [&](const std::string& name, const std::string& what) {
    if (warned_.insert(name + what).second) log_warning(str("step ", step, ": ", name, ": ", what, " (train.watch)"));
  };
  const auto put = [&](const std::string& key, double value) {
    out.values.emplace_back("watch/" + key, significant(value, 6));
  };
  for (const auto& [name, s] : by_name) {
    const auto is = [&, &name = name](const char* end) { return name.ends_with(end); };
    const std::string shown = is(kWeight) ? name.substr(0, name.size() - std::string_view(kWeight).size()) : name;
    if (const auto found = histograms.find(name); found != histograms.end())
      out.spreads.push_back({shown, found->second, s.sum, s.squares, s.largest});
    if (is(kUpdate)) continue;
    if (is(kWeight)) {
      const double weight = rms(s);
      if (weight > 0) put(shown + "/update_ratio", rms(by_name.at(shown + kUpdate)) / weight);
      continue;
    }
    if (is(kGradient)) {
      put(name + "_rms", rms(s));
      put(name + "_largest", s.largest);
    } else {
      put(name + "/mean", s.sum / std::max(1.0, s.count - s.nonfinite));
      put(name + "/rms", rms(s));
      put(name + "/largest", s.largest);
      put(name + "/zeros", s.count > 0 ? s.zeros / s.count : 0);
      if (s.count > 0 && s.zeros == s.count) warn(name, "gives nothing but zeros: its units are dead");
    }
    if (s.nonfinite > 0) {
      put(name + "/nonfinite", s.nonfinite);
      warn(name, "holds values that are not finite");
    }
  }
  return out;
}

}  // namespace lockstep
