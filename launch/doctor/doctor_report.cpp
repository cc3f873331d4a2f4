#include "launch/doctor/doctor_report.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>

#include "core/base/error.h"
#include "core/base/median.h"
#include "core/base/text_table.h"

namespace lockstep {
namespace {

// What is reported: less than this part of the median or the best, or more than so many times as much.
constexpr double kSlowCompute = 0.7, kSlowLink = 0.5, kSlowDisk = 0.5, kLateLink = 4;
constexpr double kLateByUs = 50;  // latencies below this are noise of the scheduler
constexpr double kClockOff_s = 0.1;

std::string rank_text(const Health& h, size_t r) { return str("rank ", r, " on ", h.ranks[r].host); }

bool is_local(const Health& h, const LinkHealth& l) {
  return h.ranks[static_cast<size_t>(l.a)].machine == h.ranks[static_cast<size_t>(l.b)].machine;
}

// Where machines do not agree, those that are unlike most of them.
void compare_machines(const Health& h, const std::string& what, std::string (*value_of)(const RankHealth&),
                      std::vector<std::string>& out) {
  std::map<std::string, std::map<std::string, std::string>> machines;  // value -> machine -> host
  for (const RankHealth& r : h.ranks) machines[value_of(r)][r.machine + r.host] = r.host;
  const auto most = std::max_element(machines.begin(), machines.end(),
                                     [](auto& a, auto& b) { return a.second.size() < b.second.size(); });
  for (const auto& [value, hosts] : machines) {
    if (value == most->first) continue;
    for (const auto& [_, host] : hosts) out.push_back(str(host, ": ", what, " ", value, ", most have ", most->first));
  }
}

// Links within a machine are compared with the middle one, since their times depend on where ranks run; links between
// machines with the best one, since several of them may be slow.
void find_slow_links(const Health& h, bool local, std::vector<std::string>& out) {
  std::vector<double> latencies, rates;
  for (const LinkHealth& l : h.links)
    if (is_local(h, l) == local) latencies.push_back(l.latency_us), rates.push_back(l.mb_s);
  if (rates.size() < (local ? 3 : 2)) return;  // of two within a machine neither is typical
  const double latency = local ? median(latencies) : *std::min_element(latencies.begin(), latencies.end());
  const double rate = local ? median(rates) : *std::max_element(rates.begin(), rates.end());
  const std::string other = local ? ", the median is " : ", the best is ";
  for (const LinkHealth& l : h.links) {
    if (is_local(h, l) != local) continue;
    const std::string pair = str("between rank ", l.a, " on ", h.ranks[static_cast<size_t>(l.a)].host, " and ",
                                 rank_text(h, static_cast<size_t>(l.b)));
    if (l.mb_s < kSlowLink * rate) out.push_back(str(pair, ": ", fixed(l.mb_s, 0), " MB/s", other, fixed(rate, 0)));
    if (l.latency_us > kLateLink * latency && l.latency_us > latency + kLateByUs)
      out.push_back(str(pair, ": ", fixed(l.latency_us, 1), " us", other, fixed(latency, 1)));
  }
}

}  // namespace

std::string to_line(const RankHealth& r) {
  return json_line({{"host", r.host},
                    {"machine", r.machine},
                    {"local_rank", r.local_rank},
                    {"cpu", r.cpu},
                    {"cores", r.cores},
                    {"core_count", r.core_count},
                    {"numa", r.numa},
                    {"gpu", r.gpu},
                    {"version", r.version},
                    {"isa", r.isa},
                    {"mpi", r.mpi},
                    {"gflops", r.gflops},
                    {"clock_s", r.clock_s},
                    {"clock_error_s", r.clock_error_s},
                    {"write_mb_s", r.write_mb_s},
                    {"read_mb_s", r.read_mb_s},
                    {"not_shared", r.not_shared},
                    {"memory_gb_s", r.memory_gb_s}});
}

RankHealth parse_rank_health(const std::string& line) {
  constexpr const char* kWhere = "doctor";
  const auto o = parse_json_object(line);
  check(o.has_value(), "doctor: a rank said: ", line);
  const auto text = [&](const char* key) { return json_text(*o, key, kWhere); };
  const auto number = [&](const char* key) { return json_number(*o, key, kWhere); };
  return {text("host"),
          text("machine"),
          json_int(*o, "local_rank", kWhere),
          text("cpu"),
          text("cores"),
          json_int(*o, "core_count", kWhere),
          text("numa"),
          text("gpu"),
          text("version"),
          text("isa"),
          text("mpi"),
          number("gflops"),
          number("clock_s"),
          number("clock_error_s"),
          number("write_mb_s"),
          number("read_mb_s"),
          text("not_shared"),
          number("memory_gb_s")};
}

std::vector<std::string> findings(const Health& h) {
  std::vector<std::string> out;
  compare_machines(
      h, "lockstep", [](const RankHealth& r) { return r.version; }, out);
  compare_machines(
      h, "MPI", [](const RankHealth& r) { return r.mpi; }, out);
  compare_machines(
      h, "CPU", [](const RankHealth& r) { return r.cpu; }, out);
  compare_machines(
      h, "instruction set", [](const RankHealth& r) { return r.isa; }, out);
  compare_machines(
      h, "GPU", [](const RankHealth& r) { return r.gpu; }, out);
  std::vector<double> rates, writes, reads;
  for (const RankHealth& r : h.ranks) {
    rates.push_back(r.gflops);
    if (r.write_mb_s > 0) writes.push_back(r.write_mb_s), reads.push_back(r.read_mb_s);
  }
  for (size_t i = 0; i < h.ranks.size(); ++i) {
    const RankHealth& r = h.ranks[i];
    if (i > 0 && r.core_count != h.ranks[0].core_count)
      out.push_back(str(rank_text(h, i), ": may use ", r.core_count, " cores, rank 0 ", h.ranks[0].core_count));
    if (r.gflops < kSlowCompute * median(rates))
      out.push_back(
          str(rank_text(h, i), ": computes ", fixed(r.gflops, 1), " GF/s, the median is ", fixed(median(rates), 1)));
    if (!r.not_shared.empty() && std::find(out.begin(), out.end(), r.not_shared) == out.end())
      out.push_back(r.not_shared);
    if (writes.size() > 2 && r.write_mb_s > 0 && r.write_mb_s < kSlowDisk * median(writes))
      out.push_back(
          str(r.host, ": writes ", fixed(r.write_mb_s, 0), " MB/s, the median is ", fixed(median(writes), 0)));
    if (writes.size() > 2 && r.write_mb_s > 0 && r.read_mb_s < kSlowDisk * median(reads))
      out.push_back(str(r.host, ": reads ", fixed(r.read_mb_s, 0), " MB/s, the median is ", fixed(median(reads), 0)));
    if (std::abs(r.clock_s) > kClockOff_s + r.clock_error_s)
      out.push_back(str(rank_text(h, i), ": its clock is ", fixed(std::abs(r.clock_s), 3), " s ",
                        r.clock_s > 0 ? "ahead of" : "behind", " that of rank 0"));
  }
  for (const bool local : {true, false}) find_slow_links(h, local, out);
  return out;
}

std::string tables(const Health& h) {
  std::vector<std::vector<std::string>> rows{
      {"rank", "host", "local", "cores", "NUMA", "GF/s", "memory", "clock", "write", "read", "device"}};
  for (size_t i = 0; i < h.ranks.size(); ++i) {
    const RankHealth& r = h.ranks[i];
    const auto disk = [&](double rate) { return r.write_mb_s > 0 ? fixed(rate, 0) + " MB/s" : std::string("-"); };
    rows.push_back({str(i), r.host, str(r.local_rank), r.cores, r.numa.empty() ? "-" : r.numa, fixed(r.gflops, 1),
                    fixed(r.memory_gb_s, 1) + " GB/s", i == 0 ? "0" : str(fixed(1e3 * r.clock_s, 2), " ms"),
                    disk(r.write_mb_s), disk(r.read_mb_s), r.gpu.empty() ? str(r.cpu, ", ", r.isa) : r.gpu});
  }
  std::string out = text_table(rows);
  if (!h.links.empty()) {
    rows = {{"link", "latency", "bandwidth"}};
    for (const LinkHealth& l : h.links)
      rows.push_back({str(l.a, " - ", l.b), fixed(l.latency_us, 1) + " us", fixed(l.mb_s, 0) + " MB/s"});
    out += str("\n", text_table(rows), "\nall-reduce: ", fixed(h.small_reduce_us, 1), " us for 8 bytes, ",
               fixed(h.large_reduce_mb_s, 0), " MB/s for 64 MiB\n");
    if (h.exchange_mb_s > 0)
      out += str("all machines at a time: ", fixed(h.exchange_mb_s, 0), " MB/s from each to the others\n");
  }
  const std::vector<std::string> found = findings(h);
  for (const std::string& f : found) out += str(&f == &found.front() ? "\n" : "", "differs: ", f, "\n");
  return found.empty() ? out + "\nnothing stands out\n" : out;
}

std::string json_lines(const Health& h) {
  std::string out;
  for (size_t i = 0; i < h.ranks.size(); ++i) {
    JsonObject o{{"kind", "rank"}, {"rank", static_cast<int64_t>(i)}};
    const JsonObject rest = parse_json_object(to_line(h.ranks[i])).value();
    o.insert(o.end(), rest.begin(), rest.end());
    out += json_line(o) + "\n";
  }
  for (const LinkHealth& l : h.links)
    out += json_line({{"kind", "link"},
                      {"a", static_cast<int64_t>(l.a)},
                      {"b", static_cast<int64_t>(l.b)},
                      {"latency_us", l.latency_us},
                      {"mb_s", l.mb_s}}) +
           "\n";
  if (!h.links.empty())
    out += json_line({{"kind", "all_reduce"}, {"small_us", h.small_reduce_us}, {"large_mb_s", h.large_reduce_mb_s}}) +
           "\n";
  if (h.exchange_mb_s > 0) out += json_line({{"kind", "exchange"}, {"mb_s", h.exchange_mb_s}}) + "\n";
  for (const std::string& f : findings(h)) out += json_line({{"kind", "finding"}, {"text", f}}) + "\n";
  return out;
}

}  // namespace lockstep
