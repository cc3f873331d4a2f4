#include "sharding/gather_schedule.h"

#include <algorithm>

namespace lockstep {
namespace {

double bytes_of(const GatherSchedule::Block& block) {
  double bytes = 0;
  for (const ParameterBucket* b : block) bytes += static_cast<double>(b->whole_bytes());
  return bytes;
}

}  // namespace

GatherSchedule::GatherSchedule(const Mesh& mesh, const DataParallelOptions& o, Block root, std::vector<Block> blocks,
                               TransferLog& log, ReduceSchedule& reductions)
    : mesh_(mesh),
      root_(std::move(root)),
      blocks_(std::move(blocks)),
      streams_(streams_parameters(o, mesh.shard().size)),
      has_phases_(!o.apart.empty()),
      limit_(o.gathered_limit_mb * 1e6),
      log_(log),
      reductions_(reductions) {
  double all = bytes_of(root_), largest = 0;
  for (const Block& b : blocks_) all += bytes_of(b), largest = std::max(largest, bytes_of(b));
  reshard_ = o.reshard_after_forward == Reshard::kYes ||
             (o.reshard_after_forward == Reshard::kAuto && !(limit_ > 0 && all <= limit_));
  const double least = bytes_of(root_) + (reshard_ ? largest : all - bytes_of(root_));
  require(!streams_ || limit_ <= 0 || least <= limit_, ExitCode::kConfig, o.gathered_limit_place, ": ",
          o.gathered_limit_mb, " MB are less than the ", least / 1e6, " MB that ",
          reshard_ ? "the largest block and the parameters of no block take"
                   : "all parameters take with sharding.reshard_after_forward: false",
          "; raise it");
}

void GatherSchedule::begin() {
  if (streams_) return;
  begin_gather(root_);
  for (const Block& b : blocks_) begin_gather(b);
}

void GatherSchedule::begin_round(bool announce) {
  announce_ = announce && streams_;
  forwards_ = backwards_ = 0;
}

void GatherSchedule::begin_gather(const Block& block) {
  for (ParameterBucket* b : block) {
    if (b->whole()) continue;
    log_.started(Transfer::Kind::kGather, b->name(), b->whole_bytes());
    b->gather();
  }
}

void GatherSchedule::wait(const Block& block) {
  for (ParameterBucket* b : block) {
    const double needed = log_.since_begin();
    b->wait_whole();
    const auto& transfers = log_.transfers();
    for (size_t i = transfers.size(); i-- > 0;)
      if (transfers[i].kind == Transfer::Kind::kGather && transfers[i].bucket == b->name()) {
        if (transfers[i].ready_s == 0) log_.ready(i, needed);
        break;
      }
  }
}

void GatherSchedule::enter_root() {
  if (streams_ && pass_ != Pass::kForward) {
    finish_pass(false);
    start(Pass::kForward);
  }
  begin_gather(root_);
  wait(root_);
}

void GatherSchedule::enter(size_t block, Pass pass) {
  const auto wanted = static_cast<int64_t>(block);
  if (!streams_) return wait(blocks_[block]);
  const bool behind = pass == Pass::kForward ? wanted < at_ : wanted > at_;
  if (pass != pass_ || behind) {
    finish_pass(false);
    start(pass);
  }
  while (at_ != wanted) go_to(next_of(at_));
}

int64_t GatherSchedule::next_of(int64_t block) const {
  const int64_t next = pass_ == Pass::kForward ? block + 1 : block - 1;
  return next >= 0 && next < static_cast<int64_t>(blocks_.size()) ? next : -1;
}

int64_t GatherSchedule::gathered_bytes() const {
  double bytes = bytes_of(root_);
  for (const Block& b : blocks_)
    for (const ParameterBucket* b : b)
      if (b->whole()) bytes += static_cast<double>(b->whole_bytes());
  return static_cast<int64_t>(bytes);
}

void GatherSchedule::go_to(int64_t block, bool completed) {
  if (at_ >= 0 && at_ != block && (reshard_ || pass_ == Pass::kBackward))
    for (ParameterBucket* b : blocks_[static_cast<size_t>(at_)]) b->release();
  const bool last = following_ || (completed && backwards_ == forwards_);
  if (block < at_ && pass_ == Pass::kBackward && last) reductions_.block_left(static_cast<size_t>(at_));
  at_ = block;
  const Block& here = blocks_[static_cast<size_t>(block)];
  begin_gather(here);
  wait(here);
  const int64_t next = next_of(block);
  if (next < 0) return;
  const Block& ahead = blocks_[static_cast<size_t>(next)];
  if (limit_ <= 0 || static_cast<double>(gathered_bytes()) + bytes_of(ahead) <= limit_) begin_gather(ahead);
}

void GatherSchedule::start(Pass pass) {
  pass_ = tell(pass);
  ++(pass_ == Pass::kForward ? forwards_ : backwards_);
  if (pass_ == Pass::kForward) {
    begin_gather(root_);
    wait(root_);
  }
  if (!blocks_.empty()) go_to(pass_ == Pass::kForward ? 0 : static_cast<int64_t>(blocks_.size()) - 1);
}

// Blocks that this pass did not use are gathered all the same: other ranks' micro-batches may use them. `completed`: it
// has come to its end, rather than that another pass begins (which may be a part of it that is computed again).
void GatherSchedule::finish_pass(bool completed) {
  if (pass_ == Pass::kNone) return;
  for (int64_t next = next_of(at_); at_ >= 0 && next >= 0; next = next_of(next)) go_to(next, completed);
  pass_ = Pass::kNone;
}

void GatherSchedule::end_round(bool trained) {
  if (!streams_) return;
  finish_pass(true);
  while (trained && backwards_ < forwards_) {
    start(Pass::kBackward);
    finish_pass(true);
  }
  // The number of passes does not depend on the data.
  if (trained) reductions_.blocks_pass_once(!has_phases_ && forwards_ == 1);
  if (announce_) tell(Pass::kEnd);
  announce_ = false;
}

void GatherSchedule::follow_round() {
  if (!streams_) return;
  following_ = true;
  const auto follow = [&](Pass pass) {
    announce_ = false;
    start(pass);
    finish_pass(true);
  };
  if (current_device().type == DeviceType::kMeta) {  // there are no other ranks to announce a pass
    follow(Pass::kForward);
    follow(Pass::kBackward);
  } else {
    const auto told = [&] {
      announce_ = true;
      return tell(Pass::kNone);
    };
    for (Pass pass = told(); pass != Pass::kEnd; pass = told()) follow(pass);
  }
  announce_ = following_ = false;
}

// The group's first rank has data where any has; it says which pass begins.
GatherSchedule::Pass GatherSchedule::tell(Pass pass) {
  if (!announce_) return pass;
  const Tensor word = Tensor::of<int64_t>({static_cast<int64_t>(pass)}, {1});
  mesh_.gathers().broadcast(word, 0, "pass").wait();
  if (word.device().type == DeviceType::kMeta) return pass;
  return static_cast<Pass>(static_cast<int64_t>(word.item()));
}

void GatherSchedule::settle() {
  for (ParameterBucket* b : root_) b->wait_whole();
  for (const Block& b : blocks_)
    for (ParameterBucket* b : b) b->wait_whole();
}

void GatherSchedule::invalidate(By by) {
  settle();  // also gathers that no pass waited for
  auto all_of = [&](const Block& block) {
    for (ParameterBucket* b : block)
      if (by == By::kOthers) b->invalidate(false);
      else if (!b->frozen()) b->invalidate(true);
      else b->release();
  };
  all_of(root_);
  for (const Block& b : blocks_) all_of(b);
  at_ = -1;
}

}  // namespace lockstep
