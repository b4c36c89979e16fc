// Lets MindSpore's CPU back end run what its front end cuts for Ascend: one process per rank.
//
// MindSpore refuses semi-automatic parallelism where the device is a CPU, and a CPU has no kernel
// for most collectives. Three things are put in, all in this process's memory:
//   1. The front end sees the device "Ascend", the back end the device "CPU".
//   2. A communication manager that knows the ranks and the groups.
//   3. Kernels that call back into Python: collectives, and whatever else Python names.
// Tried with the wheels of MindSpore 2.7.2 and 2.9.0 on x86-64, whose headers and libraries it needs.
#include <link.h>
#include <sys/mman.h>
#include <unistd.h>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <sstream>
#include "backend/backend_manager/backend_manager.h"
#include "ir/func_graph.h"
#include "ir/graph_utils.h"
#include "ir/manager.h"
#include "kernel/cpu/cpu_kernel.h"
#include "runtime/hardware_abstract/device_context/device_context_manager.h"
#include "utils/ms_context.h"
#if __has_include("include/common/utils/comm_manager.h")
#include "include/common/utils/comm_manager.h"  // 2.7
#else
#include "include/utils/comm_manager.h"  // 2.9
#endif

namespace ms = mindspore;

// (operator, attributes as lines of key=value, inputs, outputs) -> 0 where it went well.
// An array is described as "type:bytes:size,size,".
typedef int (*RunKernel)(const char *name, const char *attributes, int inputs, void **input, const char **input_text,
                         int outputs, void **output, const char **output_text);
typedef void (*NewGroup)(const char *name, int size, const unsigned *ranks);

static RunKernel run_kernel = nullptr;
static NewGroup new_group = nullptr;
static unsigned own_rank = 0, world_size = 1;

// 3. Kernels.

class PythonKernel : public ms::kernel::NativeCpuKernelMod {
 public:
  bool Init(const std::vector<KernelTensor *> &inputs, const std::vector<KernelTensor *> &) override {
    std::ostringstream text;
    for (size_t i = 0; i < inputs.size(); ++i) {
      auto value = inputs[i]->GetValueTrack();
      if (value && (value->isa<ms::Scalar>() || value->isa<ms::StringImm>())) text << "in" << i << "=" << value->ToString() << "\n";
    }
    for (auto &item : primitive_->attrs()) {
      text << item.first << "=" << (item.second ? item.second->ToString() : "") << "\n";
    }
    attributes_ = text.str();
    name_ = primitive_->name();
    return true;
  }

  int Resize(const std::vector<KernelTensor *> &inputs, const std::vector<KernelTensor *> &outputs) override {
    return KernelMod::Resize(inputs, outputs);
  }

  bool Launch(const std::vector<KernelTensor *> &inputs, const std::vector<KernelTensor *> &,
              const std::vector<KernelTensor *> &outputs) override {
    Arrays in(inputs), out(outputs);
    return run_kernel(name_.c_str(), attributes_.c_str(), inputs.size(), in.data.data(), in.text.data(),
                      outputs.size(), out.data.data(), out.text.data()) == 0;
  }

  std::vector<ms::kernel::KernelAttr> GetOpSupport() override {
    static std::vector<ms::kernel::KernelAttr> any = {ms::kernel::KernelAttr().AddSkipCheckAttr(true)};
    return any;
  }

 private:
  struct Arrays {
    explicit Arrays(const std::vector<KernelTensor *> &tensors) {
      for (auto tensor : tensors) {
        std::ostringstream line;
        line << ms::TypeIdToString(tensor->dtype_id(), true) << ":" << tensor->size() << ":";
        for (auto size : tensor->GetShapeVector()) line << size << ",";
        lines.push_back(line.str());
        data.push_back(tensor->device_ptr());
      }
      for (auto &line : lines) text.push_back(line.c_str());
    }
    std::vector<std::string> lines;
    std::vector<void *> data;
    std::vector<const char *> text;
  };
  std::string attributes_, name_;
};

// 2. Ranks and groups.

class Ranks : public ms::CommManager {
 public:
  Ranks() : CommManager("hccl") {}
  bool CreateGroupSync(const std::string &name, const std::vector<unsigned> &ranks) const override {
    groups()[name] = ranks;
    new_group(name.c_str(), ranks.size(), ranks.data());
    return true;
  }
  bool DestroyGroup(const std::string &) const override { return true; }
  bool GetRankID(const std::string &name, unsigned *place) const override {
    *place = own_rank;
    auto found = groups().find(name);
    if (found == groups().end()) return true;
    for (size_t i = 0; i < found->second.size(); ++i) {
      if (found->second[i] == own_rank) *place = i;
    }
    return true;
  }
  bool GetRankSize(const std::string &name, unsigned *size) const override {
    auto found = groups().find(name);
    *size = found == groups().end() ? world_size : found->second.size();
    return true;
  }
  uint32_t GetRank() override { return own_rank; }

 private:
  static std::map<std::string, std::vector<unsigned>> &groups() {
    static std::map<std::string, std::vector<unsigned>> known;
    return known;
  }
};

// 1. "Ascend" for the front end, "CPU" for the back end.

static void set_target(const std::string &name) {
  const auto &target = ms::MsContext::GetInstance()->get_param<std::string>(ms::MS_CTX_DEVICE_TARGET);
  const_cast<std::string &>(target) = name;
}

using Built = std::pair<ms::backend::BackendType, ms::backend::BackendGraphId>;
typedef Built (*Build)(ms::backend::BackendManager *, const ms::FuncGraphPtr &, const ms::backend::BackendJitConfig &,
                       const std::string &);
static Build mindspore_build = nullptr;

static Built build(ms::backend::BackendManager *self, const ms::FuncGraphPtr &graph,
                   const ms::backend::BackendJitConfig &config, const std::string &name) {
  set_target("CPU");
  if (auto manager = graph->manager()) {
    // A node keeps the target that it was first asked for.
    for (auto &node : manager->all_nodes()) {
      if (node->user_data<std::string>("primitive_target")) {
        node->set_user_data("primitive_target", std::make_shared<std::string>("CPU"));
      }
    }
    // Collectives find each other by their node's name: a back end may start them in any order.
    for (auto &node : ms::TopoSort(graph->get_return(), ms::SuccDeeperSimple)) {
      auto primitive = node->isa<ms::CNode>() ? ms::GetCNodePrimitive(node) : nullptr;
      if (!primitive || !primitive->HasAttr("group")) continue;
      auto own = primitive->Clone();
      (void)own->AddAttr("node", ms::MakeValue(node->fullname_with_scope()));
      node->cast<ms::CNodePtr>()->set_input(0, ms::NewValueNode(own));
    }
  }
  auto built = mindspore_build(self, graph, config, name);
  set_target("Ascend");
  return built;
}

typedef void *(*GetDevice)(void *, const ms::device::DeviceContextKey &);
static GetDevice mindspore_device = nullptr;

static void *device(void *self, const ms::device::DeviceContextKey &) {
  return mindspore_device(self, ms::device::DeviceContextKey{ms::device::DeviceType::kCPU, 0});
}

static void *replaced(void **slot, void *ours) {
  auto size = static_cast<uintptr_t>(getpagesize());
  auto page = reinterpret_cast<uintptr_t>(slot) & ~(size - 1);
  if (mprotect(reinterpret_cast<void *>(page), size, PROT_READ | PROT_WRITE)) {
    perror("mprotect");
    abort();
  }
  auto before = *slot;
  *slot = ours;
  return before;
}

// Looks through the jump table of one library, and replaces the places of the two functions.
static int replace_calls(struct dl_phdr_info *library, size_t, void *count) {
  bool is_frontend = strstr(library->dlpi_name, "libmindspore_frontend.so");
  if (!strstr(library->dlpi_name, "libmindspore_") && !strstr(library->dlpi_name, "_c_expression")) return 0;
  const ElfW(Sym) *symbols = nullptr;
  const char *names = nullptr;
  const ElfW(Rela) *places = nullptr;
  size_t bytes = 0;
  for (int i = 0; i < library->dlpi_phnum; ++i) {
    if (library->dlpi_phdr[i].p_type != PT_DYNAMIC) continue;
    auto entry = reinterpret_cast<const ElfW(Dyn) *>(library->dlpi_addr + library->dlpi_phdr[i].p_vaddr);
    for (; entry->d_tag != DT_NULL; ++entry) {
      if (entry->d_tag == DT_SYMTAB) symbols = reinterpret_cast<const ElfW(Sym) *>(entry->d_un.d_ptr);
      if (entry->d_tag == DT_STRTAB) names = reinterpret_cast<const char *>(entry->d_un.d_ptr);
      if (entry->d_tag == DT_JMPREL) places = reinterpret_cast<const ElfW(Rela) *>(entry->d_un.d_ptr);
      if (entry->d_tag == DT_PLTRELSZ) bytes = entry->d_un.d_val;
    }
  }
  for (size_t i = 0; i < bytes / sizeof(ElfW(Rela)); ++i) {
    const char *name = names + symbols[ELF64_R_SYM(places[i].r_info)].st_name;
    auto slot = reinterpret_cast<void **>(library->dlpi_addr + places[i].r_offset);
    if (is_frontend && !strncmp(name, "_ZN9mindspore7backend14BackendManager5BuildE", 44)) {
      mindspore_build = reinterpret_cast<Build>(replaced(slot, reinterpret_cast<void *>(build)));
      ++*static_cast<int *>(count);
    }
    if (!strcmp(name,
                "_ZN9mindspore6device20DeviceContextManager24GetOrCreateDeviceContextERKNS0_16DeviceContextKeyE")) {
      auto before = replaced(slot, reinterpret_cast<void *>(device));
      if (!mindspore_device) mindspore_device = reinterpret_cast<GetDevice>(before);
    }
  }
  return 0;
}

extern "C" {
// Returns how many calls of the back end were found and replaced: 1 in a wheel that is known. -1: the
// function that finds a device is called nowhere.
int ranks_install(unsigned rank, unsigned world, RunKernel kernel, NewGroup group, int count, const char **operators) {
  own_rank = rank, world_size = world, run_kernel = kernel, new_group = group;
  auto &factory = ms::kernel::Factory<ms::kernel::NativeCpuKernelMod>::Instance();
  for (int i = 0; i < count; ++i) {
    if (factory.IsRegistered(operators[i])) factory.UnRegister(operators[i]);
    factory.Register(operators[i], []() { return std::make_shared<PythonKernel>(); });
  }
  ms::CommManager::Register("Ascend", std::make_shared<Ranks>());
  int found = 0;
  dl_iterate_phdr(replace_calls, &found);
  return mindspore_device ? found : -1;
}

void ranks_set_target(const char *name) { set_target(name); }
}
