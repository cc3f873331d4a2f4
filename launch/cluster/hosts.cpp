#include "launch/cluster/hosts.h"

#include <arpa/inet.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdlib>
#include <sstream>

#include "core/base/error.h"
#include "core/base/host.h"
#include "core/base/plain_file.h"

namespace lockstep {
namespace {

constexpr int kMostSlots = 4096;

bool is_name(std::string_view s) {
  return !s.empty() && s.front() != '-' && std::all_of(s.begin(), s.end(), [](unsigned char c) {
    return std::isalnum(c) || c == '.' || c == '-' || c == '_';
  });
}

int number_in(std::string_view text, const std::string& where, int least = 1) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  require(error == std::errc() && end == text.data() + text.size() && value >= least && value <= kMostSlots,
          ExitCode::kUsage, where, ": '", text, "' is not a number from ", least, " to ", kMostSlots);
  return value;
}

void require_name(std::string_view name, const std::string& where) {
  require(is_name(name), ExitCode::kUsage, where, ": '", name, "' is not the name of a host");
}

// Splits at commas outside of brackets.
std::vector<std::string> parts_of(std::string_view text) {
  std::vector<std::string> out{""};
  int depth = 0;
  for (char c : text) {
    depth += c == '[' ? 1 : c == ']' ? -1 : 0;
    if (c == ',' && depth == 0) out.emplace_back();
    else out.back() += c;
  }
  return out;
}

// What stands in brackets, "08-11,20", as texts of equal length.
std::vector<std::string> numbers_of(const std::string& text, const std::string& where) {
  std::vector<std::string> out;
  std::istringstream ranges(text);
  for (std::string range; std::getline(ranges, range, ',');) {
    const size_t dash = range.find('-');
    const std::string first = range.substr(0, dash), last = dash == std::string::npos ? first : range.substr(dash + 1);
    const int begin = number_in(first, where, 0), end = number_in(last, where, 0);
    require(begin <= end, ExitCode::kUsage, where, ": '", range, "' is not a range such as 1-4");
    for (int i = begin; i <= end; ++i) {
      std::string digits = std::to_string(i);
      if (digits.size() < first.size()) digits.insert(0, first.size() - digits.size(), '0');
      out.push_back(std::move(digits));
    }
  }
  return out;
}

bool is_ipv6(const std::string& text) {
  in6_addr ignored{};
  return ::inet_pton(AF_INET6, text.substr(0, text.find('%')).c_str(), &ignored) == 1;
}

// One word: "a:8", "n[1-4]:8", "me@a", "[fd00::2]:8", "fd00::2".
std::vector<Host> hosts_of(std::string_view word, const std::string& where) {
  std::string user;
  if (const size_t at = word.find('@'); at != std::string_view::npos) {
    user = word.substr(0, at);
    require(is_name(user), ExitCode::kUsage, where, ": '", user, "' is not the name of a user");
    word.remove_prefix(at + 1);
  }
  std::string name(word);
  std::string_view slots;
  const bool bracketed = word.starts_with('['), bare = !bracketed && std::count(word.begin(), word.end(), ':') > 1;
  const size_t colon = bare ? std::string_view::npos : word.find(':', bracketed ? word.find(']') : 0);
  if (colon != std::string_view::npos) {
    name = word.substr(0, colon);
    slots = word.substr(colon + 1);
  }
  if (bracketed && name.ends_with(']')) name = name.substr(1, name.size() - 2);
  const int each = colon == std::string_view::npos ? 1 : number_in(slots, where);
  if (bracketed || bare) {
    require(is_ipv6(name), ExitCode::kUsage, where, ": '", name, "' is not an IPv6 address");
    return {{name, each, user}};
  }
  std::vector<Host> out;
  for (std::string& one : expand_nodes(name, where)) out.push_back({std::move(one), each, user});
  return out;
}

std::string value_of(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

}  // namespace

std::vector<Host> parse_hosts(std::string_view text) {
  std::vector<Host> out;
  const std::string where = str("--hosts ", text);
  for (const std::string& part : parts_of(text))
    for (Host& host : hosts_of(part, where)) {
      for (const Host& h : out)
        require(h.name != host.name, ExitCode::kUsage, where, ": ", h.name, " is named twice; write ", h.name,
                ":N for N ranks");
      out.push_back(std::move(host));
    }
  return out;
}

std::vector<Host> read_hostfile(const std::string& path) {
  constexpr int64_t kMost = 16 << 20;  // bytes
  std::istringstream file;
  try {
    file.str(InputFile(path).text(kMost));
  } catch (const Error& e) {
    throw e.with_message(str("the hostfile ", path, " cannot be read: ", e.what()));
  }
  std::vector<Host> out;
  std::string line;
  for (int number = 1; std::getline(file, line); ++number) {
    const std::string where = str(path, ":", number);
    require(line.size() < 1000 && number <= 100'000, ExitCode::kUsage, where, ": this is not a hostfile");
    std::istringstream words(line.substr(0, line.find('#')));
    std::string name, word;
    if (!(words >> name)) continue;
    std::vector<Host> named = hosts_of(name, where);
    while (words >> word) {
      require(word.starts_with("slots=") || word.starts_with("max_slots="), ExitCode::kUsage, where, ": '", word,
              "' is not known; a line is: name slots=N");
      if (word.starts_with("slots="))
        for (Host& host : named) host.slots = number_in(std::string_view(word).substr(6), where);
    }
    for (Host& host : named) {
      const auto same = std::find_if(out.begin(), out.end(), [&](const Host& h) { return h.name == host.name; });
      if (same == out.end()) out.push_back(std::move(host));
      else same->slots += host.slots;
    }
  }
  require(!out.empty(), ExitCode::kUsage, path, ": no host in it; a line is: name slots=N");
  return out;
}

std::vector<std::string> expand_nodes(std::string_view text, const std::string& where) {
  constexpr size_t kMostNodes = 1 << 20;
  std::vector<std::string> out;
  for (const std::string& part : parts_of(text)) {
    // The names so far, to each of which the next piece is added: "rack", then "rack1" and "rack2", ...
    std::vector<std::string> names{""};
    for (size_t at = 0; at < part.size();) {
      const size_t open = std::min(part.find('[', at), part.size()), close = part.find(']', open);
      require(open == part.size() || close != part.npos, ExitCode::kUsage, where, ": '", part, "' is not understood");
      for (std::string& name : names) name += part.substr(at, open - at);
      at = open;
      if (open == part.size()) break;
      const std::vector<std::string> numbers = numbers_of(part.substr(open + 1, close - open - 1), where);
      require(out.size() + names.size() * numbers.size() <= kMostNodes, ExitCode::kUsage, where, ": '", part,
              "' is more than ", kMostNodes, " hosts");
      std::vector<std::string> longer;
      for (const std::string& name : names)
        for (const std::string& number : numbers) longer.push_back(name + number);
      names = std::move(longer);
      at = close + 1;
    }
    for (std::string& name : names) {
      require_name(name, where);
      out.push_back(std::move(name));
    }
  }
  return out;
}

std::vector<int> expand_tasks(std::string_view text) {
  std::vector<int> out;
  for (const std::string& part : parts_of(text)) {
    const size_t open = part.find("(x");
    const int tasks = number_in(std::string_view(part).substr(0, open), "SLURM_TASKS_PER_NODE");
    const int times =
        open == std::string::npos
            ? 1
            : number_in(std::string_view(part).substr(open + 2, part.size() - open - 3), "SLURM_TASKS_PER_NODE");
    out.insert(out.end(), static_cast<size_t>(times), tasks);
  }
  return out;
}

Allocation current_allocation() {
  Allocation out;
  if (const std::string job = value_of("SLURM_JOB_ID"), nodes = value_of("SLURM_JOB_NODELIST");
      !job.empty() && !nodes.empty()) {
    out.scheduler = "Slurm";
    out.job = job;
    const std::string tasks = value_of("SLURM_TASKS_PER_NODE");
    const std::vector<int> slots = tasks.empty() ? std::vector<int>{} : expand_tasks(tasks);
    for (const std::string& name : expand_nodes(nodes)) {
      const size_t i = out.hosts.size();
      out.hosts.push_back({name, i < slots.size() ? slots[i] : 1});
    }
  } else if (const std::string file = value_of("PBS_NODEFILE"); !file.empty()) {
    out.scheduler = "PBS";
    out.job = value_of("PBS_JOBID");
    out.hosts = read_hostfile(file);
  }
  return out;
}

int total_slots(const std::vector<Host>& hosts) {
  int out = 0;
  for (const Host& h : hosts) out += h.slots;
  return out;
}

std::string hosts_text(const std::vector<Host>& hosts) {
  std::string out;
  for (const Host& h : hosts) {
    const std::string name = is_ipv6(h.name) ? str("[", h.name, "]") : h.name;
    out += str(out.empty() ? "" : ",", h.user.empty() ? "" : h.user + "@", name, ":", h.slots);
  }
  return out;
}

std::string mpi_name(const Host& host) {
  if (!is_ipv6(host.name)) return host.name;
  std::string out = "v6-";
  for (char c : host.name)
    out += c == ':' ? "x" : std::isalnum(static_cast<unsigned char>(c)) ? std::string(1, c) : "-";
  return out;
}

bool is_this_machine(const std::string& host) {
  const std::string own = host_name();
  return host == own || host == "localhost" || host == "127.0.0.1" || own.substr(0, own.find('.')) == host;
}

std::string other_machine(const std::vector<Host>& hosts) {
  const auto other = std::find_if(hosts.begin(), hosts.end(), [](const Host& h) { return !is_this_machine(h.name); });
  return other == hosts.end() ? "" : other->name;
}

}  // namespace lockstep
