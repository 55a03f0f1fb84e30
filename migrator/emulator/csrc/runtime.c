/* The CANN runtime calls that torch_npu needs, in host memory.
 *
 * Device memory is ordinary memory, a stream runs everything at once on the calling thread, and so
 * every event is complete as soon as it is recorded. stubs.py appends a definition of every other
 * CANN symbol that the wheel links against; those that would do work on a device call
 * emulator_unavailable() and fail with the name of the function.
 *
 * Environment: NPU_MIGRATE_EMULATOR_DEVICES (how many devices, default 1), NPU_MIGRATE_EMULATOR_SOC
 * (name of the chip, default Ascend910B1), ASCEND_RT_VISIBLE_DEVICES (as on a real machine).
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

typedef int aclError;
enum {
    SUCCESS = 0,
    INVALID_ARGUMENT = 107000,
    INVALID_DEVICE = 107001,
    NO_CONTEXT = 107002,
    EVENT_NOT_RECORDED = 107003,
    OUT_OF_MEMORY = 207001,
    UNAVAILABLE = 500000,
};
enum { MAX_DEVICES = 64 };
static const size_t DEVICE_MEMORY = (size_t)64 << 30;

/* ---- errors ---------------------------------------------------------------------------------- */

static __thread char recent_error[256];

aclError emulator_unavailable(const char *function) {
    snprintf(recent_error, sizeof recent_error, "the emulated NPU does not implement %s", function);
    return UNAVAILABLE;
}

const char *aclGetRecentErrMsg(void) { return recent_error; }
aclError aclrtPeekAtLastError(int level) { (void)level; return SUCCESS; }
aclError aclrtGetLastError(int level) { (void)level; return SUCCESS; }

/* ---- devices --------------------------------------------------------------------------------- */

static int installed_devices(void) {
    const char *text = getenv("NPU_MIGRATE_EMULATOR_DEVICES");
    int count = text ? atoi(text) : 1;
    return count < 1 ? 1 : count > MAX_DEVICES ? MAX_DEVICES : count;
}

/* Ids must ascend and exist: the list ends at the first that does not, and a list out of order is empty. */
static int visible_devices(void) {
    int installed = installed_devices(), count = 0;
    long previous = -1;
    const char *list = getenv("ASCEND_RT_VISIBLE_DEVICES");
    if (!list) return installed;
    for (const char *at = list; *at;) {
        char *end;
        long id = strtol(at, &end, 10);
        if (*at < '0' || *at > '9' || id >= installed) break;
        if (id <= previous) return 0;
        previous = id;
        count++;
        if (*end != ',') break;
        at = end + 1;
    }
    return count;
}

/* -1 until a thread sets its device: the wheel counts as used only the devices that it had to set. */
static __thread int current_device = -1;
static int device_of_memory(void) { return current_device < 0 ? 0 : current_device; }
static char contexts[MAX_DEVICES]; /* the address of contexts[i] stands for the context of device i */

aclError aclInit(const char *config) { (void)config; return SUCCESS; }
aclError aclFinalize(void) { return SUCCESS; }
aclError aclrtGetDeviceCount(uint32_t *count) { *count = visible_devices(); return SUCCESS; }
int drvGetDevNum(uint32_t *count) { *count = installed_devices(); return SUCCESS; }
aclError aclrtSetDevice(int32_t device) {
    if (device < 0 || device >= visible_devices()) return INVALID_DEVICE;
    current_device = device;
    return SUCCESS;
}
aclError aclrtGetDevice(int32_t *device) {
    if (current_device < 0) return NO_CONTEXT;
    *device = current_device;
    return SUCCESS;
}
aclError aclrtResetDevice(int32_t device) { (void)device; return SUCCESS; }
aclError aclrtResetDeviceForce(int32_t device) { (void)device; return SUCCESS; }
aclError aclrtGetCurrentContext(void **context) {
    if (current_device < 0) return NO_CONTEXT;
    *context = &contexts[current_device];
    return SUCCESS;
}
aclError aclrtSetCurrentContext(void *context) {
    if (context) current_device = (int)((char *)context - contexts);
    return SUCCESS;
}
aclError aclrtGetPrimaryCtxState(int32_t device, uint32_t *flags, int32_t *active) {
    (void)device;
    if (flags) *flags = 0;
    *active = 1;
    return SUCCESS;
}
aclError aclrtDeviceCanAccessPeer(int32_t *can, int32_t device, int32_t peer) {
    *can = device != peer;
    return SUCCESS;
}
const char *aclrtGetSocName(void) {
    const char *name = getenv("NPU_MIGRATE_EMULATOR_SOC");
    return name ? name : "Ascend910B1";
}
/* Number of cores, whatever the question: the wheel asks for nothing else. */
aclError aclGetDeviceCapability(uint32_t device, int what, int64_t *value) {
    (void)device; (void)what;
    *value = 24;
    return SUCCESS;
}
aclError aclrtGetDeviceInfo(uint32_t device, int what, int64_t *value) {
    return aclGetDeviceCapability(device, what, value);
}
typedef struct {
    int32_t cube, vector, aicpu, memory;
    void *extended;
} utilization;
aclError aclrtGetDeviceUtilizationRate(int32_t device, utilization *rate) {
    (void)device;
    memset(rate, 0, sizeof *rate);
    return SUCCESS;
}

/* ---- memory ---------------------------------------------------------------------------------- */

/* Stands in the ALIGNMENT bytes before each block, so that freeing knows what to give back. */
typedef struct {
    size_t size;
    int device;
} header;
enum { ALIGNMENT = 512 };
static atomic_size_t used_memory[MAX_DEVICES];

/* Memory of a device is addresses only until it is written to: a device may have more of it than the host. */
static void *new_addresses(size_t size, int protection) {
    void *start = mmap(NULL, size, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return start == MAP_FAILED ? NULL : start;
}

aclError aclrtMalloc(void **block, size_t size, int policy) {
    char *base = NULL;
    (void)policy;
    if (atomic_fetch_add(&used_memory[device_of_memory()], size) + size > DEVICE_MEMORY ||
        !(base = new_addresses(size + ALIGNMENT, PROT_READ | PROT_WRITE))) {
        atomic_fetch_sub(&used_memory[device_of_memory()], size);
        return OUT_OF_MEMORY;
    }
    *(header *)base = (header){size, device_of_memory()};
    *block = base + ALIGNMENT;
    return SUCCESS;
}
aclError aclrtMallocAlign32(void **block, size_t size, int policy) { return aclrtMalloc(block, size, policy); }
aclError aclrtMallocWithCfg(void **block, size_t size, int policy, void *config) {
    (void)config;
    return aclrtMalloc(block, size, policy);
}
aclError aclrtFree(void *block) {
    if (block) {
        header *base = (header *)((char *)block - ALIGNMENT);
        atomic_fetch_sub(&used_memory[base->device], base->size);
        munmap(base, base->size + ALIGNMENT);
    }
    return SUCCESS;
}
aclError aclrtMallocHost(void **block, size_t size) {
    return posix_memalign(block, ALIGNMENT, size ? size : ALIGNMENT) ? OUT_OF_MEMORY : SUCCESS;
}
aclError aclrtMallocHostWithCfg(void **block, uint64_t size, void *config) {
    (void)config;
    return aclrtMallocHost(block, size);
}
aclError aclrtFreeHost(void *block) { free(block); return SUCCESS; }
aclError aclrtHostRegister(void *block, uint64_t size, int kind, void **on_device) {
    (void)size; (void)kind;
    *on_device = block;
    return SUCCESS;
}
aclError aclrtHostRegisterV2(void *block, uint64_t size, uint32_t flags) {
    (void)flags;
    return block && size ? SUCCESS : INVALID_ARGUMENT;
}
aclError aclrtHostUnregister(void *block) { return block ? SUCCESS : INVALID_ARGUMENT; }
aclError aclrtGetMemInfo(int kind, size_t *available, size_t *total) {
    (void)kind;
    *total = DEVICE_MEMORY;
    *available = DEVICE_MEMORY - atomic_load(&used_memory[device_of_memory()]);
    return SUCCESS;
}
aclError aclrtMemcpy(void *to, size_t room, const void *from, size_t size, int kind) {
    (void)room; (void)kind;
    memmove(to, from, size);
    return SUCCESS;
}
aclError aclrtMemcpyAsync(void *to, size_t room, const void *from, size_t size, int kind, void *stream) {
    (void)stream;
    return aclrtMemcpy(to, room, from, size, kind);
}
aclError aclrtMemcpyAsyncWithCondition(void *to, size_t room, const void *from, size_t size, int kind, void *stream) {
    (void)stream;
    return aclrtMemcpy(to, room, from, size, kind);
}
aclError aclrtMemset(void *block, size_t room, int32_t value, size_t size) {
    (void)room;
    memset(block, value, size);
    return SUCCESS;
}
aclError aclrtMemsetAsync(void *block, size_t room, int32_t value, size_t size, void *stream) {
    (void)stream;
    return aclrtMemset(block, room, value, size);
}

/* ---- expandable segments: addresses that are reserved first and get memory later ---------------- */

typedef struct region {
    char *start;
    size_t size;
    struct region *next;
} region;
static region *reserved, *mapped;
static pthread_mutex_t regions_lock = PTHREAD_MUTEX_INITIALIZER;

static aclError remember(region **list, void *start, size_t size) {
    region *new = malloc(sizeof *new);
    if (!new) return OUT_OF_MEMORY;
    pthread_mutex_lock(&regions_lock);
    *new = (region){start, size, *list};
    *list = new;
    pthread_mutex_unlock(&regions_lock);
    return SUCCESS;
}

/* The size of the region that starts there, which is removed; 0 when there is none. */
static size_t forget(region **list, void *start) {
    size_t size = 0;
    pthread_mutex_lock(&regions_lock);
    for (region **at = list; *at; at = &(*at)->next)
        if ((*at)->start == start) {
            region *found = *at;
            size = found->size;
            *at = found->next;
            free(found);
            break;
        }
    pthread_mutex_unlock(&regions_lock);
    return size;
}

aclError aclrtReserveMemAddress(void **address, size_t size, size_t alignment, void *wanted, uint64_t flags) {
    (void)alignment; (void)wanted; (void)flags;
    void *start = new_addresses(size, PROT_NONE);
    if (!start) return OUT_OF_MEMORY;
    *address = start;
    return remember(&reserved, start, size);
}
aclError aclrtReleaseMemAddress(void *address) {
    size_t size = forget(&reserved, address);
    return size && !munmap(address, size) ? SUCCESS : INVALID_ARGUMENT;
}
aclError aclrtMallocPhysical(void **handle, size_t size, const void *properties, uint64_t flags) {
    header *block = malloc(sizeof *block);
    (void)properties; (void)flags;
    if (!block || atomic_fetch_add(&used_memory[device_of_memory()], size) + size > DEVICE_MEMORY) {
        if (block) atomic_fetch_sub(&used_memory[device_of_memory()], size);
        free(block);
        return OUT_OF_MEMORY;
    }
    *block = (header){size, device_of_memory()};
    *handle = block;
    return SUCCESS;
}
aclError aclrtFreePhysical(void *handle) {
    header *block = handle;
    atomic_fetch_sub(&used_memory[block->device], block->size);
    free(block);
    return SUCCESS;
}
aclError aclrtMapMem(void *address, size_t size, size_t offset, void *handle, uint64_t flags) {
    (void)offset; (void)handle; (void)flags;
    if (mprotect(address, size, PROT_READ | PROT_WRITE)) return INVALID_ARGUMENT;
    return remember(&mapped, address, size);
}
aclError aclrtUnmapMem(void *address) {
    size_t size = forget(&mapped, address);
    int kind = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED; /* gives the pages back to the system */
    return size && mmap(address, size, PROT_NONE, kind, -1, 0) == address ? SUCCESS : INVALID_ARGUMENT;
}

/* ---- streams, callbacks, events --------------------------------------------------------------- */

typedef struct { int32_t id; } stream;
static atomic_int stream_count;

aclError aclrtCreateStream(void **created) {
    stream *new = calloc(1, sizeof *new);
    if (!new) return OUT_OF_MEMORY;
    new->id = atomic_fetch_add(&stream_count, 1) + 1;
    *created = new;
    return SUCCESS;
}
aclError aclrtCreateStreamWithConfig(void **created, uint32_t priority, uint32_t flags) {
    (void)priority; (void)flags;
    return aclrtCreateStream(created);
}
aclError aclrtDestroyStream(void *stream) { free(stream); return SUCCESS; }
aclError aclrtDestroyStreamForce(void *stream) { free(stream); return SUCCESS; }
aclError aclrtStreamGetId(void *of, int32_t *id) { *id = of ? ((stream *)of)->id : 0; return SUCCESS; }
aclError aclrtStreamQuery(void *stream, int *status) { (void)stream; *status = 0; /* complete */ return SUCCESS; }

typedef void (*callback)(void *);
aclError aclrtLaunchCallback(callback function, void *argument, int block, void *stream) {
    (void)block; (void)stream;
    function(argument);
    return SUCCESS;
}
aclError aclrtLaunchHostFunc(void *stream, callback function, void *argument) {
    (void)stream;
    function(argument);
    return SUCCESS;
}
/* Polled by a thread of the wheel; there is never anything to report. */
aclError aclrtProcessReport(int32_t milliseconds) {
    usleep((milliseconds > 0 ? milliseconds : 100) * 1000);
    return SUCCESS;
}

typedef struct { int64_t nanoseconds; } event;

aclError aclrtCreateEvent(void **created) {
    *created = calloc(1, sizeof(event));
    return *created ? SUCCESS : OUT_OF_MEMORY;
}
aclError aclrtCreateEventWithFlag(void **created, uint32_t flags) { (void)flags; return aclrtCreateEvent(created); }
aclError aclrtCreateEventExWithFlag(void **created, uint32_t flags) { (void)flags; return aclrtCreateEvent(created); }
aclError aclrtDestroyEvent(void *event) { free(event); return SUCCESS; }
aclError aclrtRecordEvent(void *on, void *stream) {
    struct timespec now;
    (void)stream;
    clock_gettime(CLOCK_MONOTONIC, &now);
    ((event *)on)->nanoseconds = now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
    return SUCCESS;
}
aclError aclrtQueryEventStatus(void *event, int *status) { (void)event; *status = 1; /* complete */ return SUCCESS; }
aclError aclrtQueryEventWaitStatus(void *event, int *status) { (void)event; *status = 0; /* complete */ return SUCCESS; }
aclError aclrtEventElapsedTime(float *milliseconds, void *start, void *end) {
    int64_t from = ((event *)start)->nanoseconds, to = ((event *)end)->nanoseconds;
    if (!from || !to) return EVENT_NOT_RECORDED;
    *milliseconds = (float)((to - from) / 1e6);
    return SUCCESS;
}

/* ---- versions, options, and states that the wheel waits on -------------------------------------- */

aclError aclsysGetVersionStr(char *package, char *version) {
    (void)package;
    strcpy(version, "8.5.0");
    return SUCCESS;
}
aclError aclGetCannAttribute(int attribute, int32_t *value) { (void)attribute; *value = 1; return SUCCESS; }
aclError aclmdlRICaptureGetInfo(void *stream, int *status, void **model) {
    (void)stream;
    *status = 0; /* not capturing */
    if (model) *model = NULL;
    return SUCCESS;
}

enum { OPTION_COUNT = 32, OPTION_SIZE = 16 };
static char options[OPTION_COUNT][OPTION_SIZE];

aclError aclSetCompileopt(int option, const char *value) {
    if (option >= 0 && option < OPTION_COUNT) snprintf(options[option], OPTION_SIZE, "%s", value);
    return SUCCESS;
}
size_t aclGetCompileoptSize(int option) { (void)option; return OPTION_SIZE; }
aclError aclGetCompileopt(int option, char *value, size_t size) {
    const char *set = option >= 0 && option < OPTION_COUNT ? options[option] : "";
    snprintf(value, size, "%s", *set ? set : "disable");
    return SUCCESS;
}

static int64_t system_options[OPTION_COUNT];

aclError aclrtSetSysParamOpt(int option, int64_t value) {
    if (option >= 0 && option < OPTION_COUNT) system_options[option] = value;
    return SUCCESS;
}
aclError aclrtGetSysParamOpt(int option, int64_t *value) {
    *value = option >= 0 && option < OPTION_COUNT ? system_options[option] : 0;
    return SUCCESS;
}
aclError aclrtCtxSetSysParamOpt(int option, int64_t value) { return aclrtSetSysParamOpt(option, value); }

/* ---- launches that know the operator's name ----------------------------------------------------- */

aclError aclopCompileAndExecute(const char *operator, ...) { return emulator_unavailable(operator); }
aclError aclopCompileAndExecuteV2(const char *operator, ...) { return emulator_unavailable(operator); }
