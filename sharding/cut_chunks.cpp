#include "sharding/cut_chunks.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <sstream>

#include "core/kernels/kernels.h"
#include "sharding/tree.h"

namespace lockstep {
namespace {

constexpr int64_t kStretch = 1 << 20;  // elements of an entry that are looked at together

// What a rank sends to the one that brings a chunk together: this, and then `count` elements of the chunk from `begin`
// on; or where `count` is kSum the sum of squares of the whole chunk, fp64.
struct ChunkPart {
  static constexpr int64_t kSum = -1;
  int64_t chunk = 0, begin = 0, count = 0;
};

// A chunk, brought together.
struct JoinedChunk {
  int64_t index = 0;
  std::vector<float> values;
};

// The exchange of one tensor's chunks. Chunks are dealt to ranks in contiguous ranges.
class ChunkExchange {
 public:
  ChunkExchange(std::string name, const Shape& shape, Communicator& comm)
      : name_(std::move(name)),
        elements_(shape.numel()),
        chunks_(ceil_div(elements_, kStateChunk)),
        comm_(comm),
        sent_(static_cast<size_t>(comm.size())) {}

  int64_t chunks() const { return chunks_; }
  IndexRange owned() const { return owned_by(comm_.rank()); }
  IndexRange owned_by(int rank) const { return split_evenly(chunks_, comm_.size(), rank); }

  void send(const ChunkPart& part, const void* values, size_t bytes) {
    std::string& to = sent_[static_cast<size_t>(owner_of(part.chunk))];
    to.append(reinterpret_cast<const char*>(&part), sizeof part);
    to.append(static_cast<const char*>(values), bytes);
  }

  // Calls whole(element, values, n) for stretches of whole chunks of the entry, and sends what it has of others.
  template <class Whole>
  void take(const StateEntry& e, const Whole& whole) {
    for_each_stretch(e, kStretch, [&](int64_t at, const float* values, int64_t n) {
      const int64_t base = e.offset + at;
      for_each_run(e.region, {base, base + n}, [&](int64_t from, int64_t element, int64_t m) {
        const float* run = values + (from - base);
        const int64_t end = element + m, first = std::min(round_up(element, kStateChunk), end),
                      last = std::max(first, end == elements_ ? end : end / kStateChunk * kStateChunk);
        send_elements(element, run, first - element);
        if (last > first) whole(first, run + (first - element), last - first);
        send_elements(last, run + (last - element), end - last);
      });
    });
  }

  // Brings together what all ranks sent to this one, by index. Sums of whole chunks go to `sum`(chunk, value).
  template <class Sum>
  std::vector<JoinedChunk> join(const Sum& sum) {
    const std::string all = exchange();
    std::vector<std::pair<ChunkPart, const char*>> parts;
    for (size_t at = 0; at < all.size();) {
      ChunkPart p;
      std::memcpy(&p, all.data() + at, sizeof p);
      at += sizeof p;
      if (p.count != ChunkPart::kSum) {
        parts.emplace_back(p, all.data() + at);
        at += static_cast<size_t>(p.count) * sizeof(float);
        continue;
      }
      double value = 0;
      std::memcpy(&value, all.data() + at, sizeof value);
      at += sizeof value;
      sum(p.chunk, value);
    }
    std::sort(parts.begin(), parts.end(), [](const auto& a, const auto& b) {
      return std::pair(a.first.chunk, a.first.begin) < std::pair(b.first.chunk, b.first.begin);
    });
    std::vector<JoinedChunk> out;
    for (const auto& [p, from] : parts) {
      if (out.empty() || out.back().index != p.chunk) {
        if (!out.empty()) require_complete(out.back());
        out.push_back({p.chunk, {}});
      }
      std::vector<float>& values = out.back().values;
      const auto held = static_cast<int64_t>(values.size());
      check(p.begin == held, name_, ": elements from ", p.chunk * kStateChunk + std::min(held, p.begin),
            p.begin < held ? " on are on two ranks" : " on are on no rank");
      values.resize(static_cast<size_t>(held + p.count));
      std::memcpy(values.data() + held, from, static_cast<size_t>(p.count) * sizeof(float));
    }
    if (!out.empty()) require_complete(out.back());
    return out;
  }

 private:
  int owner_of(int64_t chunk) const {
    const int64_t base = chunks_ / comm_.size(), extra = chunks_ % comm_.size(), in_larger = (base + 1) * extra;
    return static_cast<int>(chunk < in_larger ? chunk / (base + 1) : extra + (chunk - in_larger) / base);
  }

  void send_elements(int64_t element, const float* values, int64_t n) {
    for (int64_t at = 0; at < n;) {
      const int64_t begin = (element + at) % kStateChunk, count = std::min(kStateChunk - begin, n - at);
      send({(element + at) / kStateChunk, begin, count}, values + at, static_cast<size_t>(count) * sizeof(float));
      at += count;
    }
  }

  void require_complete(const JoinedChunk& c) const {
    const auto held = static_cast<int64_t>(c.values.size());
    check(held == std::min(kStateChunk, elements_ - c.index * kStateChunk), name_, ": elements from ",
          c.index * kStateChunk + held, " on are on no rank");
  }

  std::string exchange() {
    const auto size = static_cast<size_t>(comm_.size()), me = static_cast<size_t>(comm_.rank());
    std::string counts_here;
    std::vector<int64_t> sent, sent_from, received, received_from;
    int64_t to_send = 0, to_receive = 0;
    for (const std::string& text : sent_) {
      sent.push_back(static_cast<int64_t>(text.size()));
      sent_from.push_back(to_send);
      to_send += sent.back();
      counts_here += str(sent.back(), " ");
    }
    for (const std::string& text : all_gather_text(comm_, counts_here, name_)) {
      std::istringstream in(text);
      std::vector<int64_t> counts(size);
      for (int64_t& n : counts) in >> n;
      received.push_back(counts[me]);
      received_from.push_back(to_receive);
      to_receive += counts[me];
    }
    const auto bytes = [](int64_t n) {
      Tensor t = Tensor::unallocated({n}, DType::kUInt8, Device{});
      t.allocate();
      return t;
    };
    const Tensor out = bytes(to_receive), in = bytes(to_send);
    for (size_t r = 0; r < size; ++r) {
      if (!sent_[r].empty())
        std::memcpy(static_cast<char*>(in.write()) + sent_from[r], sent_[r].data(), sent_[r].size());
      std::string().swap(sent_[r]);
    }
    comm_.all_to_all(out, received, received_from, in, sent, sent_from, name_).finish();
    return {static_cast<const char*>(out.read()), static_cast<size_t>(to_receive)};
  }

  const std::string name_;
  const int64_t elements_, chunks_;
  Communicator& comm_;
  std::vector<std::string> sent_;  // by rank
};

using ByName = std::map<std::string, std::vector<const StateEntry*>>;

// The tensors of all ranks: name and shape. On each rank in the same order.
std::map<std::string, Shape> tensors_of_all(const ByName& mine, Communicator& comm) {
  std::string lines;
  for (const auto& [name, entries] : mine) {
    for (int64_t extent : entries[0]->region.shape) lines += str(extent, " ");
    lines += str("= ", name, "\n");
  }
  std::map<std::string, Shape> out;
  for (const std::string& text : all_gather_text(comm, lines, "tensors in regions")) {
    std::istringstream in(text);
    for (std::string line; std::getline(in, line);) {
      const size_t at = line.find("= ");
      std::istringstream extents(line.substr(0, at));
      Shape shape;
      for (int64_t extent = 0; extents >> extent;) shape.push_back(extent);
      const auto [known, is_new] = out.emplace(line.substr(at + 2), shape);
      check(is_new || known->second == shape, known->first, " is ", known->second, " on one rank and ", shape,
            " on another");
    }
  }
  return out;
}

// fp64 sums of squares of the chunks of values [n], which begin at a chunk.
std::vector<double> squares_of_chunks(Stream& host, const float* values, int64_t n) {
  std::vector<double> out(static_cast<size_t>(ceil_div(n, kStateChunk)));
  host.enqueue([&](Parallel& p) { kernels(p).chunk_norms(p, values, n, out.data()); });
  host.synchronize();
  return out;
}

// Of the chunks that this rank owns, the sums of the tree's largest nodes.
std::string nodes_of(Stream& host, IndexRange owned, int64_t chunks, std::vector<double>& sums) {
  std::vector<int64_t> ranges;
  for (const IndexRange& node : maximal_nodes(owned, chunks))
    ranges.insert(ranges.end(), {node.begin - owned.begin, node.end - owned.begin});
  std::vector<double> out(ranges.size() / 2);
  const TreeSumsArgs a{sums.data(), ranges.data(), static_cast<int64_t>(out.size()), out.data()};
  host.enqueue([&](Parallel& p) { kernels(p).tree_sums(p, a); });
  host.synchronize();
  return {reinterpret_cast<const char*>(out.data()), out.size() * sizeof(double)};
}

double sum_of_squares(ChunkExchange& exchange, const std::string& name, const std::vector<const StateEntry*>& entries,
                      Communicator& comm) {
  Stream host(Device{}, Stream::Mode::kInline, 1);
  for (const StateEntry* e : entries)
    exchange.take(*e, [&](int64_t element, const float* values, int64_t n) {
      int64_t chunk = element / kStateChunk;
      for (const double sum : squares_of_chunks(host, values, n))
        exchange.send({chunk++, 0, ChunkPart::kSum}, &sum, sizeof sum);
    });
  const IndexRange owned = exchange.owned();
  std::vector<double> sums(static_cast<size_t>(owned.size()), -1);
  const auto put = [&](int64_t chunk, double sum) {
    double& to = sums[static_cast<size_t>(chunk - owned.begin)];
    check(to < 0, name, ": elements from ", chunk * kStateChunk, " on are on two ranks");
    to = sum;
  };
  for (const JoinedChunk& c : exchange.join(put))
    put(c.index, squares_of_chunks(host, c.values.data(), static_cast<int64_t>(c.values.size()))[0]);
  for (size_t i = 0; i < sums.size(); ++i)
    check(!(sums[i] < 0), name, ": elements from ", (owned.begin + static_cast<int64_t>(i)) * kStateChunk,
          " on are on no rank");
  TreeStack<double> tree(exchange.chunks());
  const auto all = all_gather_text(comm, nodes_of(host, owned, exchange.chunks(), sums), name);
  for (int r = 0; r < comm.size(); ++r) {
    const char* from = all[static_cast<size_t>(r)].data();
    for (const IndexRange& node : maximal_nodes(exchange.owned_by(r), exchange.chunks())) {
      double sum = 0;
      std::memcpy(&sum, from, sizeof sum);
      from += sizeof sum;
      tree.push(node, sum, [](double& into, double other) { into += other; });
    }
  }
  return tree.complete() ? tree.nodes()[0].second : 0;  // incomplete: of a tensor without an element
}

}  // namespace

std::map<std::string, Hash128> digest_shares(const std::vector<StateEntry>& entries, Communicator& comm) {
  std::map<std::string, Hash128> out;
  ByName cut;
  for (const StateEntry& e : entries) {
    if (e.region.is_aligned(kStateChunk)) out[e.name] += digest_of({e});
    else cut[e.name].push_back(&e);
  }
  for (const auto& [name, shape] : tensors_of_all(cut, comm)) {
    ChunkExchange exchange(name, shape, comm);
    Hash128& sum = out[name];
    for (const StateEntry* e : cut[name])
      exchange.take(*e, [&, &tensor = name](int64_t element, const float* values, int64_t n) {
        sum += digest_of(tensor, element, values, n);
      });
    for (const JoinedChunk& c : exchange.join([](int64_t, double) {}))
      sum += digest_of(name, c.index * kStateChunk, c.values.data(), static_cast<int64_t>(c.values.size()));
  }
  return out;
}

Hash128 sum_of_shares(const Hash128& mine, Communicator& comm, std::string_view label) {
  const auto high = all_gather_values(comm, std::bit_cast<int64_t>(mine.high), label),
             low = all_gather_values(comm, std::bit_cast<int64_t>(mine.low), label);
  Hash128 sum;
  for (size_t r = 0; r < high.size(); ++r) sum += {std::bit_cast<uint64_t>(high[r]), std::bit_cast<uint64_t>(low[r])};
  return sum;
}

std::map<std::string, double> sums_of_squares(const std::vector<StateEntry>& entries, Communicator& comm) {
  ByName mine;
  for (const StateEntry& e : entries) mine[e.name].push_back(&e);
  std::map<std::string, double> out;
  for (const auto& [name, shape] : tensors_of_all(mine, comm)) {
    ChunkExchange exchange(name, shape, comm);
    out[name] = sum_of_squares(exchange, name, mine[name], comm);
  }
  return out;
}

}  // namespace lockstep
