/* Ranks on a device that the program opens by Vulkan itself: vulkan PACKAGE. */
#include "rewire.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <vulkan/vulkan.h>

#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #condition, rewire_message());                      \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)
#define COUNT(values) (sizeof(values) / sizeof(*(values)))
#define INT64S(values) {REWIRE_INT64, values, COUNT(values)}

static const char *const EXTENSIONS[] = {VK_KHR_GET_PHYSICAL_DEVICE_PROPERTIES_2_EXTENSION_NAME};
static const int64_t AGES[] = {2, 3}, COUNTRIES[] = {2, 0}, EVENTS[] = {0, 5, 5}, OFFERS[] = {0, 3, 4};
static const int64_t ITEMS[] = {11, 25, 22, 26, 23}, GENRES[] = {4, 0, 3, 1, 0}, ACTIONS[] = {1, 0, 2, 3, 1};
static const int64_t WATCHED[] = {779, 1113, 208, 1175, 510};
static const int64_t TIMES[] = {1738000000, 1738000613, 1738001226, 1738001839, 1738002452};
static const int64_t OFFERED[] = {0, 23, 6, 24}, OFFERED_GENRES[] = {3, 2, 1, 0};
static const int64_t NOW[] = {1738040000, 1738040000, 1738040000, 1738040000};
static const rewire_column COLUMNS[] = {
    {REWIRE_CONTEXTUAL, "age_bucket", INT64S(AGES), {0, 0, 0}},
    {REWIRE_CONTEXTUAL, "country", INT64S(COUNTRIES), {0, 0, 0}},
    {REWIRE_HISTORY, "item_id", INT64S(ITEMS), INT64S(EVENTS)},
    {REWIRE_HISTORY, "genre", INT64S(GENRES), INT64S(EVENTS)},
    {REWIRE_HISTORY, "action", INT64S(ACTIONS), INT64S(EVENTS)},
    {REWIRE_HISTORY, "watchtime", INT64S(WATCHED), INT64S(EVENTS)},
    {REWIRE_HISTORY, "timestamp", INT64S(TIMES), INT64S(EVENTS)},
    {REWIRE_CANDIDATES, "item_id", INT64S(OFFERED), INT64S(OFFERS)},
    {REWIRE_CANDIDATES, "genre", INT64S(OFFERED_GENRES), INT64S(OFFERS)},
    {REWIRE_CANDIDATES, "timestamp", INT64S(NOW), INT64S(OFFERS)},
};
static const int64_t BEST[] = {23, 6, 0, 24};
static const float LOGITS[] = {-0.033730656f, 0.480002f,     -0.21502596f, 0.41798425f,
                               -0.5061746f,   -0.045830734f, -0.5783202f,  -0.19326858f};

static VkInstance open_instance(void) {
    const VkApplicationInfo app = {.sType = VK_STRUCTURE_TYPE_APPLICATION_INFO, .apiVersion = VK_API_VERSION_1_3};
    const VkInstanceCreateInfo info = {.sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO, .pApplicationInfo = &app,
                                       .enabledExtensionCount = 1, .ppEnabledExtensionNames = EXTENSIONS};
    VkInstance instance = VK_NULL_HANDLE;
    CHECK(vkCreateInstance(&info, NULL, &instance) == VK_SUCCESS);
    return instance;
}

/* With what rewire needs, and a queue of the app's beside its own where the family has two. */
static VkDevice open_device(VkPhysicalDevice physical, const rewire_vulkan_adapter *adapter) {
    const float priority = 1;
    const VkDeviceQueueCreateInfo queue = {.sType = VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO, .queueFamilyIndex = 0,
                                           .queueCount = 1, .pQueuePriorities = &priority};
    const VkDeviceCreateInfo *needed = rewire_vulkan_adapter_device_info(adapter);
    CHECK(needed && needed->sType == VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO && needed->queueCreateInfoCount == 0);
    VkDeviceCreateInfo info = *needed;
    info.queueCreateInfoCount = 1;
    info.pQueueCreateInfos = &queue;
    VkDevice device = VK_NULL_HANDLE;
    CHECK(vkCreateDevice(physical, &info, NULL, &device) == VK_SUCCESS);
    return device;
}

static void check_faults(rewire_vulkan_instance instance, VkPhysicalDevice physical) {
    rewire_vulkan_adapter *none = NULL;
    rewire_vulkan_instance other = instance;
    other.extension_count = 0;
    CHECK(rewire_vulkan_adapter_new(&other, physical, &none) == REWIRE_STATUS_MODEL && !none);
    CHECK(strstr(rewire_message(), "VK_KHR_get_physical_device_properties2"));
    other = instance;
    other.api_version = VK_API_VERSION_1_0;
    CHECK(rewire_vulkan_adapter_new(&other, physical, &none) == REWIRE_STATUS_MODEL && !none);
    CHECK(strstr(rewire_message(), "apiVersion 1.0: expected 1."));
    other = instance;
    other.get_instance_proc_addr = NULL;
    CHECK(rewire_vulkan_adapter_new(&other, physical, &none) == REWIRE_STATUS_ARGUMENT);
    CHECK(rewire_vulkan_adapter_new(&instance, NULL, &none) == REWIRE_STATUS_ARGUMENT);
    CHECK(rewire_vulkan_adapter_new(NULL, physical, &none) == REWIRE_STATUS_ARGUMENT && !none);
    CHECK(!rewire_vulkan_adapter_device_info(NULL));
    rewire_vulkan_adapter_free(NULL);
}

static void check_ranking(const rewire_ranker *ranker) {
    rewire_batch *batch = NULL;
    rewire_ranking *ranking = NULL;
    rewire_scores scores;
    CHECK(rewire_batch_new(ranker, &batch) == REWIRE_STATUS_OK);
    CHECK(rewire_batch_extend(batch, NULL, 2, COLUMNS, COUNT(COLUMNS)) == REWIRE_STATUS_OK);
    CHECK(rewire_rank(ranker, batch, &ranking) == REWIRE_STATUS_OK);
    CHECK(rewire_ranking_scores(ranking, &scores) == REWIRE_STATUS_OK);
    CHECK(scores.candidates == COUNT(BEST) && memcmp(scores.items, BEST, sizeof BEST) == 0);
    for (size_t n = 0; n < COUNT(LOGITS); n++) {
        CHECK(fabsf(scores.logits[n] - LOGITS[n]) < 1e-4f);
    }
    rewire_ranking_free(ranking);
    rewire_batch_free(batch);
}

/* Two models on one device of the app's, which is then closed. */
static void check_device(const rewire_vulkan_instance *instance, VkPhysicalDevice physical, const char *package) {
    rewire_vulkan_adapter *adapter = NULL;
    rewire_options *options = NULL;
    rewire_ranker *rankers[2] = {NULL, NULL};
    CHECK(rewire_vulkan_adapter_new(instance, physical, &adapter) == REWIRE_STATUS_OK);
    VkDevice device = open_device(physical, adapter);
    CHECK(rewire_options_new(&options) == REWIRE_STATUS_OK);
    CHECK(rewire_options_kernel(options, REWIRE_KERNEL_WGPU) == REWIRE_STATUS_OK);
    CHECK(rewire_options_vulkan_device(options, adapter, device, 99, 0) == REWIRE_STATUS_MODEL);
    CHECK(strstr(rewire_message(), "queue family 99 has no queue 0"));
    CHECK(rewire_options_vulkan_device(options, adapter, NULL, 0, 0) == REWIRE_STATUS_ARGUMENT);
    CHECK(rewire_options_vulkan_device(options, NULL, device, 0, 0) == REWIRE_STATUS_ARGUMENT);
    CHECK(rewire_options_vulkan_device(options, adapter, device, 0, 0) == REWIRE_STATUS_OK);
    rewire_vulkan_adapter_free(adapter);
    for (int n = 0; n < 2; n++) {
        CHECK(rewire_ranker_load(package, options, &rankers[n]) == REWIRE_STATUS_OK);
    }
    rewire_options_free(options);
    check_ranking(rankers[0]);
    check_ranking(rankers[1]);
    rewire_ranker_free(rankers[0]);
    check_ranking(rankers[1]);
    rewire_ranker_free(rankers[1]);
    CHECK(vkDeviceWaitIdle(device) == VK_SUCCESS);
    vkDestroyDevice(device, NULL);
}

int main(int count, char **arguments) {
    CHECK(count == 2);
    VkInstance instance = open_instance();
    uint32_t devices = 1;
    VkPhysicalDevice physical = VK_NULL_HANDLE;
    vkEnumeratePhysicalDevices(instance, &devices, &physical);
    CHECK(devices == 1);
    VkPhysicalDeviceProperties properties;
    vkGetPhysicalDeviceProperties(physical, &properties);
    const rewire_vulkan_instance own = {.instance = instance,
                                        .get_instance_proc_addr = (PFN_vkVoidFunction)vkGetInstanceProcAddr,
                                        .api_version = VK_API_VERSION_1_3,
                                        .extensions = EXTENSIONS,
                                        .extension_count = COUNT(EXTENSIONS)};
    check_faults(own, physical);
    check_device(&own, physical, arguments[1]);
    check_device(&own, physical, arguments[1]);
    vkDestroyInstance(instance, NULL);
    printf("ranked on %s\n", properties.deviceName);
    return 0;
}
