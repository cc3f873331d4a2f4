#include "launch/config/config_tree.h"

#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <map>
#include <sstream>
#include <unordered_set>

#include "core/base/error.h"
#include "core/base/trace.h"
#include "launch/config/config_source.h"

// yaml-cpp/yaml.h includes the event interface, but not the header of its handler.
#include <yaml-cpp/eventhandler.h>

namespace lockstep {
namespace {

using Kind = ConfigNode::Kind;
using Source = std::shared_ptr<const std::string>;

std::string place(const Source& source, int line) { return line > 0 ? str(*source, ":", line) : *source; }

[[noreturn]] void fail(const Source& source, int line, std::string_view what) {
  throw Error(ExitCode::kConfig, str(place(source, line), ": ", what));
}

int count_values(const ConfigNode& node) {
  int n = 1;
  for (const auto& child : node.children) n += count_values(child);
  return n;
}

int depth_of(const ConfigNode& node) {
  int depth = 0;
  for (const auto& child : node.children) depth = std::max(depth, depth_of(child));
  return depth + 1;
}

// Builds the tree from yaml-cpp's events. yaml-cpp's own node tree would take ten times the memory and checks neither
// duplicate keys nor aliases. Throwing here stops the parser before it recurses further.
class Builder : public YAML::EventHandler {
 public:
  Builder(Source source, bool has_lines) : source_(std::move(source)), has_lines_(has_lines) {}

  ConfigNode take_root() { return std::move(root_); }

  void OnDocumentStart(const YAML::Mark& mark) override {
    if (++documents_ > 1) fail(source_, line(mark), "a second document (---): a configuration is one document");
  }
  void OnDocumentEnd() override {}

  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override { add(leaf(Kind::kNull, mark), anchor); }

  void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    auto found = anchors_.find(anchor);
    if (found == anchors_.end()) fail(source_, line(mark), str(path(), "an alias inside its own anchor"));
    count(count_values(found->second), mark);
    check_depth(static_cast<int>(frames_.size()) + depth_of(found->second), mark);
    ConfigNode copy = found->second;
    copy.line = line(mark);
    attach(std::move(copy));
  }

  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    check_tag(tag, mark);
    if (!is_utf8(value))  // the file is UTF-8, but yaml-cpp converts each of these escapes to one byte
      fail(source_, line(mark), str(path(), "the escapes \\N and \\_ are not supported: write \\u0085 and \\u00a0"));
    ConfigNode node = leaf(Kind::kScalar, mark);
    node.scalar = value;
    node.quoted = tag == "!";
    add(std::move(node), anchor);
  }

  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    open(Kind::kList, mark, tag, anchor);
  }
  void OnSequenceEnd() override { close(); }

  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    open(Kind::kMap, mark, tag, anchor);
  }
  void OnMapEnd() override { close(); }

 private:
  struct Frame {
    ConfigNode node;
    YAML::anchor_t anchor = 0;
    bool has_key = false;  // in a map: the next node is the value of `key`
    std::string key;
    int key_line = 0;
    std::unordered_set<std::string> keys;
  };

  int line(const YAML::Mark& mark) const { return has_lines_ ? std::max(0, mark.line) + 1 : 0; }

  // "optim.rules[2].decay: ", for messages
  std::string path() const {
    std::string out;
    for (const auto& f : frames_) {
      if (f.node.kind == Kind::kList) {
        out += str("[", f.node.children.size(), "]");
      } else if (f.has_key) {
        out += (out.empty() ? "" : ".") + f.key;
      }
    }
    if (out.size() > 120) out = out.substr(0, 120) + "...";
    return out.empty() ? out : out + ": ";
  }

  void count(int values, const YAML::Mark& mark) {
    values_ += values;
    if (values_ > ConfigTree::kMaxValues)
      fail(source_, line(mark),
           str(path(), "more than ", ConfigTree::kMaxValues, " values (aliases expanded): not a configuration"));
  }

  void check_depth(int depth, const YAML::Mark& mark) {
    if (depth > ConfigTree::kMaxDepth)
      fail(source_, line(mark), str(path(), "nested deeper than ", ConfigTree::kMaxDepth, " levels"));
  }

  void check_tag(const std::string& tag, const YAML::Mark& mark) {
    if (!tag.empty() && tag != "?" && tag != "!")
      fail(source_, line(mark), str(path(), "a tag (", tag.substr(0, 60), "): write the plain value"));
  }

  ConfigNode leaf(Kind kind, const YAML::Mark& mark) {
    count(1, mark);
    ConfigNode node;
    node.kind = kind;
    node.line = line(mark);
    node.source = source_;
    return node;
  }

  void open(Kind kind, const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor) {
    check_tag(tag, mark);
    if (!frames_.empty() && frames_.back().node.kind == Kind::kMap && !frames_.back().has_key)
      fail(source_, line(mark), str(path(), "a key must be one word"));
    check_depth(static_cast<int>(frames_.size()) + 1, mark);
    Frame frame;
    frame.node = leaf(kind, mark);
    frame.anchor = anchor;
    frames_.push_back(std::move(frame));
  }

  void close() {
    Frame frame = std::move(frames_.back());
    frames_.pop_back();
    add(std::move(frame.node), frame.anchor);
  }

  void add(ConfigNode node, YAML::anchor_t anchor) {
    if (anchor != 0) {
      // The copy that is kept for an anchor takes memory, so it is counted like a use.
      anchored_ += count_values(node);
      if (anchored_ > ConfigTree::kMaxValues)
        fail(source_, node.line, str(path(), "anchors hold more than ", ConfigTree::kMaxValues, " values"));
      anchors_[anchor] = node;
    }
    attach(std::move(node));
  }

  void attach(ConfigNode node) {
    if (frames_.empty()) {
      root_ = std::move(node);
      return;
    }
    Frame& top = frames_.back();
    if (top.node.kind == Kind::kList) {
      top.node.children.push_back(std::move(node));
    } else if (top.has_key) {
      node.key = std::move(top.key);
      node.line = top.key_line;
      top.has_key = false;
      top.node.children.push_back(std::move(node));
    } else {
      take_key(top, node);
    }
  }

  void take_key(Frame& top, const ConfigNode& node) {
    if (node.kind != Kind::kScalar || node.scalar.empty())
      fail(source_, node.line, str(path(), "a key must be one word"));
    if (node.scalar == "<<") fail(source_, node.line, str(path(), "merge keys (<<) are not supported: write the keys"));
    std::string shown = node.scalar.substr(0, 120);
    if (node.scalar.find('.') != std::string::npos)
      fail(source_, node.line, str(path(), "the key ", shown, " holds a dot: write its parts as nested keys"));
    if (!top.keys.insert(node.scalar).second)
      fail(source_, node.line,
           str(path(), "the key ", shown, " is given twice (first in line ", top.node.find(node.scalar)->line, ")"));
    top.key = node.scalar;
    top.key_line = node.line;
    top.has_key = true;
  }

  Source source_;
  bool has_lines_;
  ConfigNode root_;
  std::vector<Frame> frames_;
  std::map<YAML::anchor_t, ConfigNode> anchors_;
  int documents_ = 0, values_ = 0, anchored_ = 0;
};

ConfigNode parse_yaml(std::string_view text, const Source& source, bool has_lines) {
  check_config_text(text, *source, has_lines);
  Builder builder(source, has_lines);
  try {
    std::istringstream stream{std::string(text)};
    YAML::Parser parser(stream);
    while (parser.HandleNextDocument(builder)) {
    }
  } catch (const YAML::Exception& e) {
    int line = has_lines && e.mark.line >= 0 ? e.mark.line + 1 : 0;
    fail(source, line, str("not valid YAML: ", e.msg.substr(0, 200)));
  }
  ConfigNode root = builder.take_root();
  if (!root.source) root.source = source;
  return root;
}

ConfigNode* find_child(ConfigNode& node, std::string_view key) {
  for (auto& child : node.children)
    if (child.key == key) return &child;
  return nullptr;
}

// Merges maps; replaces all other values.
void merge(ConfigNode& into, ConfigNode from) {
  if (into.kind != Kind::kMap || from.kind != Kind::kMap) {
    from.key = into.key;
    into = std::move(from);
    return;
  }
  for (auto& child : from.children) {
    if (ConfigNode* there = find_child(into, child.key)) {
      merge(*there, std::move(child));
    } else {
      into.children.push_back(std::move(child));
    }
  }
}

// The parts of "optim.rules.0".
std::vector<std::string> parts_of_path(std::string_view path, const Source& source) {
  std::vector<std::string> out;
  for (size_t at = 0; at <= path.size();) {
    const size_t dot = std::min(path.find('.', at), path.size());
    out.emplace_back(path.substr(at, dot - at));
    if (out.back().empty() || out.back().find_first_of(" \t\r\n") != std::string::npos)
      fail(source, 0, "write an override as key.path=value, without spaces around the key");
    if (out.size() > ConfigTree::kMaxDepth)
      fail(source, 0, str("nested deeper than ", ConfigTree::kMaxDepth, " levels"));
    at = dot + 1;
  }
  return out;
}

// The child that one part of a path names; null where there is none.
ConfigNode* child_there(ConfigNode& node, const std::string& part) {
  if (node.kind == Kind::kMap) return find_child(node, part);
  const bool digits = !part.empty() && part.size() < 7 && part.find_first_not_of("0123456789") == std::string::npos;
  const size_t i = digits ? std::stoul(part) : node.children.size();
  return i < node.children.size() ? &node.children[i] : nullptr;
}

// The child that one part of an override's path names; created if a map does not have it.
ConfigNode& enter(ConfigNode& node, const std::string& part, const std::string& parent, const Source& source) {
  if (node.kind == Kind::kList) {
    if (ConfigNode* there = child_there(node, part)) return *there;
    fail(source, 0,
         str(parent, " is a list of ", node.children.size(), " (", node.where(), "): there is no element ", part));
  }
  if (node.kind == Kind::kScalar)
    fail(source, 0, str(parent, " is a value (", node.where(), "), it has no keys below it"));
  if (node.kind == Kind::kNull) node.kind = Kind::kMap;
  if (ConfigNode* there = find_child(node, part)) return *there;
  ConfigNode child;
  child.source = source;
  child.key = part;
  node.children.push_back(std::move(child));
  return node.children.back();
}

}  // namespace

std::string ConfigNode::where() const { return place(source, line); }

const ConfigNode* ConfigNode::find(std::string_view child_key) const {
  if (kind != Kind::kMap) return nullptr;
  for (const auto& child : children)
    if (child.key == child_key) return &child;
  return nullptr;
}

ConfigTree::ConfigTree() {
  root_.kind = Kind::kMap;
  root_.source = std::make_shared<const std::string>("defaults");
}

ConfigTree ConfigTree::load(const std::string& path, const std::vector<std::string>& overrides) {
  trace_mark();
  return parse(read_config_file(path), path, overrides);
}

ConfigTree ConfigTree::parse(std::string_view yaml, const std::string& name,
                             const std::vector<std::string>& overrides) {
  auto source = std::make_shared<const std::string>(name);
  ConfigTree tree;
  ConfigNode root = parse_yaml(yaml, source, true);
  if (root.kind == Kind::kMap) {
    tree.root_ = std::move(root);
  } else if (root.kind != Kind::kNull) {
    fail(source, root.line, "a configuration is a map of keys (key: value), not a single value or list");
  } else {
    tree.root_.source = source;
  }
  for (const auto& o : overrides) tree.apply_override(o);
  return tree;
}

void ConfigTree::apply_override(std::string_view text) { apply(text, str("override ", ++overrides_)); }

void ConfigTree::set(std::string_view text, std::string_view command) { apply(text, str("set by ", command)); }

void ConfigTree::apply(std::string_view text, const std::string& from) {
  std::string shown(text.substr(0, 100));
  // For messages and comments, the override as one line of printable text.
  for (char& c : shown)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) c = ' ';
  if (text.size() > 100) {
    while (!shown.empty() && (shown.back() & 0xC0) == 0x80) shown.pop_back();
    if (!shown.empty() && (shown.back() & 0x80)) shown.pop_back();
    shown += "...";
  }
  auto source = std::make_shared<const std::string>(str(from, " (", shown, ")"));
  if (text.starts_with('~')) return take_away(text.substr(1), source);
  size_t equals = text.find('=');
  if (equals == std::string_view::npos || equals == 0) fail(source, 0, "write an override as key.path=value");
  ConfigNode value = parse_yaml(text.substr(equals + 1), source, false);
  ConfigNode* node = &root_;
  std::string parent;
  for (const std::string& part : parts_of_path(text.substr(0, equals), source)) {
    node = &enter(*node, part, parent, source);
    parent += (parent.empty() ? "" : ".") + part;
  }
  merge(*node, std::move(value));
}

void ConfigTree::take_away(std::string_view path, const Source& source) {
  if (path.find('=') != path.npos) fail(source, 0, "write ~key.path, without a value, to take a key back");
  std::vector<std::string> parts = parts_of_path(path, source);
  const std::string last = std::move(parts.back());
  parts.pop_back();
  ConfigNode* node = &root_;
  for (const std::string& part : parts)
    if (node) node = child_there(*node, part);
  const ConfigNode* gone = node ? child_there(*node, last) : nullptr;
  if (!gone) fail(source, 0, str("nothing gives the key ", path.substr(0, 100), ", so it cannot be taken back"));
  node->children.erase(node->children.begin() + (gone - node->children.data()));
}

}  // namespace lockstep
