#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <unordered_map>

#include "athanor/io/pickle_objects.h"

// The machine of Python's Lib/pickle.py and its opcodes as Lib/pickletools.py documents them.
namespace athanor::io {

namespace {

constexpr int kMaxDepth = 500;

class Machine {
 public:
  Machine(Bytes pickle, const std::string& name, const StorageLoader& storages)
      : rest_(pickle), size_(pickle.size()), name_(name), objects_(name, pickle.size(), storages) {}
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;
  // A failed or hostile pickle may leave lists that contain themselves, or chains too long to be destroyed by
  // recursion.
  ~Machine() {
    for (const IValue& container : containers_)
      if (!finished_ || !heights_.contains(IValueAccess::identity(container))) IValueAccess::clear(container);
  }

  IValue run() {
    while (step(take<std::uint8_t>())) {
    }
    IValue result = pop();
    want(stack_.empty() && marks_.empty(), "it ends with values left over");
    resolve(result, 0);
    finished_ = true;
    return result;
  }

 private:
  template <class... Args>
  [[noreturn]] void fail(const Args&... what) const {
    ATHANOR_THROW(IoError, name_, ": malformed pickle at byte ", size_ - rest_.size(), " of ", size_, ": ", what...);
  }
  void want(bool condition, const char* what) const {
    if (!condition) fail(what);
  }

  Bytes take_bytes(std::uint64_t count) {
    if (count > rest_.size()) fail("it is truncated: ", count, " bytes expected, ", rest_.size(), " follow");
    const Bytes bytes = rest_.first(count);
    rest_ = rest_.subspan(count);
    return bytes;
  }
  template <class T>
  T take() {
    T value;
    std::memcpy(&value, take_bytes(sizeof value).data(), sizeof value);
    return value;
  }
  std::string_view take_view(std::uint64_t count) {
    const Bytes bytes = take_bytes(count);
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }
  IValue take_text(std::uint64_t count) { return std::string(take_view(count)); }
  std::string_view take_line() {
    const auto end = std::ranges::find(rest_, std::byte{'\n'});
    want(end != rest_.end(), "a line without an end");
    const auto line = take_view(static_cast<std::uint64_t>(end - rest_.begin()));
    take_bytes(1);
    return line;
  }
  IValue take_long(std::uint64_t count) {
    if (count > 8) fail("an integer of ", count, " bytes; at most 8 fit");
    std::uint64_t value = 0;
    const Bytes bytes = take_bytes(count);
    for (std::size_t i = 0; i < count; ++i) value |= static_cast<std::uint64_t>(bytes[i]) << (8 * i);
    // The last byte has the sign.
    if (count > 0 && count < 8 && (value >> (8 * count - 1)) != 0) value |= ~std::uint64_t{0} << (8 * count);
    return static_cast<std::int64_t>(value);
  }

  void push(IValue v) { stack_.push_back(std::move(v)); }
  IValue pop() {
    want(stack_.size() > (marks_.empty() ? 0 : marks_.back()), "a value is missing");
    IValue v = std::move(stack_.back());
    stack_.pop_back();
    return v;
  }
  const IValue& top() const {
    want(stack_.size() > (marks_.empty() ? 0 : marks_.back()), "a value is missing");
    return stack_.back();
  }
  std::vector<IValue> pop_to_mark() {
    want(!marks_.empty(), "a mark is missing");
    const auto from = stack_.begin() + static_cast<std::ptrdiff_t>(marks_.back());
    std::vector<IValue> items(std::make_move_iterator(from), std::make_move_iterator(stack_.end()));
    stack_.erase(from, stack_.end());
    marks_.pop_back();
    return items;
  }
  void push_container(IValue v) {
    containers_.push_back(v);
    push(std::move(v));
  }
  void push_tuple(std::size_t count) {
    std::vector<IValue> items(count);
    for (std::size_t i = count; i-- > 0;) items[i] = pop();
    push_container(IValue::tuple(std::move(items)));
  }

  void append(std::vector<IValue> items) {
    const IValue& list = top();
    want(list.isList(), "elements for something that is no list");
    auto& to = *IValueAccess::items(list);
    to.insert(to.end(), std::make_move_iterator(items.begin()), std::make_move_iterator(items.end()));
  }
  void set_items(const std::vector<IValue>& items) {
    want(top().isGenericDict() && items.size() % 2 == 0, "entries for something that is no dict");
    GenericDict dict = top().toGenericDict();
    for (std::size_t i = 0; i < items.size(); i += 2) {
      objects_.check_key(items[i]);
      dict.insert_or_assign(items[i], items[i + 1]);
    }
  }

  void remember(std::uint64_t slot) { memo_[slot] = top(); }
  void recall(std::uint64_t slot) {
    const auto found = memo_.find(slot);
    if (found == memo_.end()) fail("nothing was remembered as ", slot);
    push(found->second);
  }

  void call() {
    const IValue arguments = pop(), function = pop();
    push_container(objects_.call(function, arguments));
  }
  void global(std::string_view module, std::string_view name) { push(objects_.global(module, name)); }

  bool step(std::uint8_t opcode);
  int resolve(IValue& value, int depth);

  Bytes rest_;
  std::size_t size_;
  std::string name_;
  io::detail::PickleObjects objects_;
  std::vector<IValue> stack_;
  std::vector<std::size_t> marks_;
  std::unordered_map<std::uint64_t, IValue> memo_;
  std::vector<IValue> containers_;
  std::unordered_map<const void*, int> heights_;  // of the containers in the result
  bool finished_ = false;
};

// False at the end of the pickle.
bool Machine::step(std::uint8_t opcode) {
  switch (opcode) {
    case 0x80: {  // PROTO
      const int protocol = take<std::uint8_t>();
      if (protocol < 2 || protocol > 5) fail("protocol ", protocol, ", expected 2 to 5");
      break;
    }
    case 0x95:  // FRAME
      take<std::uint64_t>();
      break;
    case '.':
      return false;
    case '(':
      marks_.push_back(stack_.size());
      break;
    case 'N':
      push(IValue());
      break;
    case 0x88:
    case 0x89:
      push(opcode == 0x88);
      break;
    case 'J':
      push(take<std::int32_t>());
      break;
    case 'K':
      push(take<std::uint8_t>());
      break;
    case 'M':
      push(take<std::uint16_t>());
      break;
    case 0x8a:  // LONG1
      push(take_long(take<std::uint8_t>()));
      break;
    case 0x8b:  // LONG4
      push(take_long(take<std::uint32_t>()));
      break;
    case 'G':
      push(std::bit_cast<double>(__builtin_bswap64(take<std::uint64_t>())));
      break;
    case 'U':   // SHORT_BINSTRING
    case 'C':   // SHORT_BINBYTES
    case 0x8c:  // SHORT_BINUNICODE
      push(take_text(take<std::uint8_t>()));
      break;
    case 'T':  // BINSTRING
    case 'B':  // BINBYTES
    case 'X':  // BINUNICODE
      push(take_text(take<std::uint32_t>()));
      break;
    case 0x8d:  // BINUNICODE8
    case 0x8e:  // BINBYTES8
    case 0x96:  // BYTEARRAY8
      push(take_text(take<std::uint64_t>()));
      break;
    case ']':
    case 0x8f:  // EMPTY_SET
      push_container(std::vector<IValue>());
      break;
    case '}':
      push_container(GenericDict());
      break;
    case ')':
      push_tuple(0);
      break;
    case 0x85:
    case 0x86:
    case 0x87:
      push_tuple(opcode - 0x84U);
      break;
    case 't':
      push_container(IValue::tuple(pop_to_mark()));
      break;
    case 0x91:  // FROZENSET
      push_container(pop_to_mark());
      break;
    case 'a': {
      std::vector<IValue> one;
      one.push_back(pop());
      append(std::move(one));
      break;
    }
    case 'e':
    case 0x90:  // ADDITEMS
      append(pop_to_mark());
      break;
    case 's': {
      IValue value = pop();
      IValue key = pop();
      set_items({std::move(key), std::move(value)});
      break;
    }
    case 'u':
      set_items(pop_to_mark());
      break;
    case 'q':
      remember(take<std::uint8_t>());
      break;
    case 'r':
      remember(take<std::uint32_t>());
      break;
    case 0x94:  // MEMOIZE
      remember(memo_.size());
      break;
    case 'h':
      recall(take<std::uint8_t>());
      break;
    case 'j':
      recall(take<std::uint32_t>());
      break;
    case 'c': {
      const auto module = take_line();
      global(module, take_line());
      break;
    }
    case 0x93: {  // STACK_GLOBAL
      const IValue name = pop(), module = pop();
      want(name.isString() && module.isString(), "a name that is no text");
      global(module.toStringRef(), name.toStringRef());
      break;
    }
    case 'Q':
      push(objects_.persistent(pop()));
      break;
    case 'R':
    case 0x81:  // NEWOBJ
      call();
      break;
    case 'b': {
      const IValue state = pop();
      objects_.build(top(), state);
      break;
    }
    default:
      rest_ = {rest_.data() - 1, rest_.size() + 1};
      if (opcode >= 0x20 && opcode < 0x7f)
        fail("opcode '", std::string(1, static_cast<char>(opcode)),
             "', which neither tensors nor state_dicts need (of protocol 0 or 1? Save with protocol 2 or above)");
      fail("opcode ", static_cast<int>(opcode), ", which neither tensors nor state_dicts need");
  }
  return true;
}

// Puts tensors in the place of NumPy's arrays, refuses what is no value, what contains itself and what is too deep.
// Returns how deep the value is. Containers are visited once each, however many hold them.
int Machine::resolve(IValue& value, int depth) {
  if (const auto* array = IValueAccess::as<io::detail::NumpyArray>(value)) {
    want(array->tensor.defined(), "a NumPy array without values");
    value = array->tensor;
    return 0;
  }
  if (const auto* global = IValueAccess::as<io::detail::Global>(value)) {
    // A bare dtype is a common entry of configurations.
    if (global->callee != io::detail::Callee::DTypeName) fail(global->name, " stands where a value should");
    value = "torch." + global->dtype;
    return 0;
  }
  if (IValueAccess::is_object(value)) fail("a bare storage or dtype where a value should be; save a tensor instead");
  const void* identity = IValueAccess::identity(value);
  if (!identity) return 0;
  constexpr int kOpen = -1;
  const auto [at, fresh] = heights_.emplace(identity, kOpen);
  if (!fresh) {
    want(at->second != kOpen, "a value that contains itself");
    want(depth + at->second <= kMaxDepth, "values nested too deep");
    return at->second;
  }
  want(depth < kMaxDepth, "values nested too deep");
  int height = 0;
  if (auto* items = IValueAccess::items(value))
    for (IValue& item : *items) height = std::max(height, 1 + resolve(item, depth + 1));
  if (auto* entries = IValueAccess::entries(value))
    for (auto& entry : *entries) height = std::max(height, 1 + resolve(IValueAccess::value(entry), depth + 1));
  heights_[identity] = height;
  return height;
}

}  // namespace

IValue unpickle(Bytes pickle, const std::string& name, const StorageLoader& storages) {
  return Machine(pickle, name, storages).run();
}

}  // namespace athanor::io
